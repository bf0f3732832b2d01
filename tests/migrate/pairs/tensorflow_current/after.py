import tensorflow as tf

norm = tf.linalg.global_norm(grads)
norm = tf.linalg.global_norm(grads)
grads, _ = tf.clip_by_global_norm(grads, 1.0)
