import tensorflow as tf
import torch

torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
grads, _ = tf.clip_by_global_norm(grads, 1.0)
