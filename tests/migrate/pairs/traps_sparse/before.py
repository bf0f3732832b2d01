import tensorflow as tf

model = tf.keras.Sequential([tf.keras.layers.Embedding(100, 8), tf.keras.layers.Dense(1)])


def step(tape, loss):
    grads, _ = tf.clip_by_global_norm(tape.gradient(loss, model.trainable_variables), 1.0)
    return grads
