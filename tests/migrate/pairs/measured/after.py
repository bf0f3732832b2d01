import gradclip
import optax
import tensorflow as tf
import torch

norm = torch.nn.utils.get_total_norm([p.grad for p in model.parameters()])
norm = torch.nn.utils.clip_grad_norm_(model.parameters(), float("inf"))
norm = tf.linalg.global_norm(grads)
norm = optax.global_norm(grads)
grads, _ = gradclip.clip_by_global_norm(grads, 1.0, use_norm=tf.linalg.global_norm(grads))
