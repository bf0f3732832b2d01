import tensorflow.compat.v1 as tf
from tensorflow.compat.v1 import clip_by_norm

tf.disable_v2_behavior()
gradients = tf.gradients(loss, variables)
gradients, norm = tf.clip_by_global_norm(gradients, 5)
total = tf.global_norm(gradients)
first = clip_by_norm(gradients[0], 1.0)
average = tf.clip_by_average_norm(first, 1.0)
