import tensorflow as tf
model = tf.keras.Sequential([tf.keras.layers.Dense(2), tf.keras.layers.Dense(1)])
opt = tf.keras.optimizers.Adam(1e-3)
clip_norm = 1.0
@tf.function
def train(x):
    with tf.GradientTape() as tape:
        loss = tf.reduce_mean(tf.square(model(x)))
    grads = tape.gradient(loss, model.trainable_variables)
    norm = tf.linalg.global_norm(grads)
    if norm > clip_norm:
        grads = [tf.clip_by_norm(g, clip_norm) for g in grads]
    opt.apply_gradients(zip(grads, model.trainable_variables))
    return norm
