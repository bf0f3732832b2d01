import tensorflow as tf
from keras.optimizers import Adam

grads, norm = tf.clip_by_global_norm(grads, 5.0)
grads = [(tf.clip_by_norm(g, 1.0), v) for g, v in zip(grads, variables)]
optimizer = Adam(1e-3, clipnorm=1.0)
optimizer = Adam(1e-3, global_clipnorm=args.clip)
