import tensorflow as tf

opt = tf.keras.optimizers.SGD(0.1)
for x, y in ds:
    with tf.GradientTape() as tape:
        loss = tf.reduce_mean(tf.square(model(x) - y))
    grads = tape.gradient(loss, model.trainable_variables)
    grads = [None if g is None else tf.clip_by_value(g, -1.0, 1.0) for g in grads]
    opt.apply_gradients(zip(grads, model.trainable_variables))
