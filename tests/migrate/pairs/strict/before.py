import tensorflow as tf
import torch


def step(model, grads, g):
    g = tf.clip_by_norm(g, 1.0)
    g = tf.clip_by_norm(g, 1.0, axes=[0])
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    total = torch.nn.utils.get_total_norm(grads)
    return g, total
