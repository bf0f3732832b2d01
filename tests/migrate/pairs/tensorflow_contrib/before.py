import tensorflow as tf
from tensorflow.contrib import slim

train_op = tf.contrib.layers.optimize_loss(loss, step, 0.1, "Adam", clip_gradients=5.0)
train_op = tf.contrib.layers.optimize_loss(loss, step, 0.1, "Adam")
train_op = tf.contrib.layers.optimize_loss(loss, step, 0.1, "Adam", None, None, args.clip)
train_op = slim.learning.create_train_op(loss, optimizer, clip_gradient_norm=4)
train_op = slim.learning.create_train_op(loss, optimizer, clip_gradient_norm=0)
gradients = slim.learning.clip_gradient_norms(gradients, 4)
optimizer = tf.contrib.estimator.clip_gradients_by_norm(optimizer, 5.0)
