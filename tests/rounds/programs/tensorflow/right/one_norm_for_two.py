import tensorflow as tf

encoder, decoder = tf.keras.layers.Dense(4), tf.keras.layers.Dense(3)
first, second = tf.keras.optimizers.Adam(0.01), tf.keras.optimizers.SGD(0.01)


def step(x):
    with tf.GradientTape(persistent=True) as tape:
        loss = tf.reduce_mean(tf.square(decoder(encoder(x)) - x))
    ours = tape.gradient(loss, encoder.trainable_variables)
    theirs = tape.gradient(loss, decoder.trainable_variables)
    norm = tf.linalg.global_norm(ours + theirs)
    ours, _ = tf.clip_by_global_norm(ours, 1.0, use_norm=norm)
    theirs, _ = tf.clip_by_global_norm(theirs, 1.0, use_norm=norm)
    first.apply_gradients(zip(ours, encoder.trainable_variables))
    second.apply_gradients(zip(theirs, decoder.trainable_variables))


for _ in range(6):
    step(tf.random.normal((8, 3)))
