import paddle
import tensorflow as tf

def step(grads):
    if grads:
        tf.clip_by_global_norm(grads, 5.0)
    grads, norm = tf.clip_by_global_norm(grads, float("inf"))
    return grads

paddle.nn.utils.clip_grad_norm_((p for p in model.parameters()), 1.0)
