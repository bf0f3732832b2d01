import tensorflow as tf
encoder, decoder = tf.keras.layers.Dense(8), tf.keras.layers.Dense(4)
encoder_optimizer, decoder_optimizer = tf.keras.optimizers.SGD(0.1), tf.keras.optimizers.SGD(0.1)

def train(x):
    with tf.GradientTape(persistent=True) as tape:
        loss = tf.reduce_mean(tf.square(decoder(encoder(x)) - x))
    of_encoder = tape.gradient(loss, encoder.trainable_variables)
    of_decoder = tape.gradient(loss, decoder.trainable_variables)
    of_decoder, _ = tf.clip_by_global_norm(of_decoder, 1.0)
    of_encoder, _ = tf.clip_by_global_norm(of_encoder, 0.5)
    encoder_optimizer.apply_gradients(zip(of_encoder, encoder.trainable_variables))
    decoder_optimizer.apply_gradients(zip(of_decoder, decoder.trainable_variables))
