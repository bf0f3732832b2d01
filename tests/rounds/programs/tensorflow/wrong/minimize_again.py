import tensorflow as tf


def train_step(model, opt, x, y, clip_norm):
    with tf.GradientTape(persistent=True) as tape:
        loss = tf.reduce_mean(tf.keras.losses.mse(y, model(x, training=True)))
    grads = tape.gradient(loss, model.trainable_variables)
    grads, _ = tf.clip_by_global_norm(grads, clip_norm)
    opt.minimize(loss, model.trainable_variables, tape=tape)
    return loss


model = tf.keras.Sequential([tf.keras.Input((3,)), tf.keras.layers.Dense(1)])
for _ in range(3):
    train_step(model, tf.keras.optimizers.Adam(), tf.ones((2, 3)), tf.ones((2, 1)), 1.0)
