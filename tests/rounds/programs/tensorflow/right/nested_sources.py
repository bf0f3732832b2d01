import tensorflow as tf

opt = tf.keras.optimizers.Adam(1e-4)


@tf.function
def train_step(x, y):
    with tf.GradientTape() as tape:
        z = encoder(x, training=True)
        loss = tf.reduce_mean(tf.square(decoder(z, training=True) - y))
    enc_grads, dec_grads = tape.gradient(loss, [encoder.trainable_variables, decoder.trainable_variables])
    grads, _ = tf.clip_by_global_norm(enc_grads + dec_grads, 1.0)
    opt.apply_gradients(zip(grads, encoder.trainable_variables + decoder.trainable_variables))
    return loss
