import gradclip
import tensorflow.compat.v1 as tf

tf.disable_v2_behavior()
gradients = tf.gradients(loss, variables)
gradients, norm = gradclip.clip_by_global_norm(gradients, 5)
total = gradclip.global_norm(gradients)
first = gradclip.clip_by_norm(gradients[0], 1.0)
average = tf.clip_by_average_norm(first, 1.0)
