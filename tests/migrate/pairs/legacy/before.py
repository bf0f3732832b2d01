import paddle.fluid as fluid
import tensorflow as tf

grads, _ = tf.clip_by_global_norm(tf.gradients(loss, variables), 5.0)
optimizer = tf.train.AdamOptimizer(0.001)
grads = [tf.clip_by_norm(grad, 5.0) for grad in grads]
fluid.clip.set_gradient_clip(fluid.clip.GradientClipByNorm(1.0))
tf.clip_by_value(image, 0.0, 1.0)
