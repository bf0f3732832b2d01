import gradclip
import tensorflow as tf


def ignored(grads):
    tf.clip_by_global_norm(grads, 1.0)
    for g in grads:
        g = tf.clip_by_norm(g, 1.0)
    return grads


def unscaled(optimizer, tape, loss, variables):
    scaled = optimizer.get_scaled_loss(loss)
    grads = tape.gradient(scaled, variables)
    return gradclip.clip_by_global_norm(grads, 1.0)


def without_none(grads, variables):
    grads = [g for g in grads if g is not None]
    clipped, _ = tf.clip_by_global_norm(grads, 1.0)
    return zip(clipped, variables)


def by_value(grads, max_grad_norm):
    return [tf.clip_by_value(g, -max_grad_norm, max_grad_norm) for g in grads]


def other_variables(tape, loss, variables, optimizer):
    grads = [g for g in tape.gradient(loss, variables) if g is not None]
    optimizer.apply_gradients(zip(grads, variables))
