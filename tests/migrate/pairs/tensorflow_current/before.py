import tensorflow as tf
import tensorflow.compat.v1 as tf1

norm = tf.global_norm(grads)
norm = tf1.global_norm(grads)
grads, _ = tf.clip_by_global_norm(grads, 1.0)
