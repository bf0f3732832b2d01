"""A tagger in TensorFlow with a training loop of its own."""

import tensorflow as tf

CLIP = 5.0
optimizer = tf.keras.optimizers.Adam(1e-3)
embeddings = tf.keras.optimizers.SGD(0.1, clipnorm=1.0)


@tf.function
def step(model, tokens, tags, loss_of):
    with tf.GradientTape() as tape:
        loss = loss_of(tags, model(tokens, training=True))
    grads = tape.gradient(loss, model.trainable_variables)
    grads, norm = tf.clip_by_global_norm(grads, CLIP)
    optimizer.apply_gradients(zip(grads, model.trainable_variables))
    tf.summary.scalar("gradient_norm", norm)
    return loss
