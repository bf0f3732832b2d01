import tensorflow as tf

tf.random.set_seed(0)
dense = tf.keras.layers.Dense
g = tf.keras.Sequential([tf.keras.Input((4,)), dense(16, "relu"), dense(2)])
d = tf.keras.Sequential([tf.keras.Input((2,)), dense(16, "relu"), dense(1)])
g_opt = tf.keras.optimizers.Adam(1e-4, beta_1=0.0)
d_opt = tf.keras.optimizers.Adam(4e-4, beta_1=0.0)


def step(real):
    z = tf.random.normal((len(real), 4))
    with tf.GradientTape() as g_tape, tf.GradientTape() as d_tape:
        fake = g(z)
        mix = real + tf.random.uniform((len(real), 1)) * (fake - real)
        with tf.GradientTape() as inner:
            inner.watch(mix)
            score = d(mix)
        slope = tf.norm(inner.gradient(score, mix), axis=1)
        d_loss = tf.reduce_mean(d(fake)) - tf.reduce_mean(d(real)) + 10 * tf.reduce_mean((slope - 1) ** 2)
        g_loss = -tf.reduce_mean(d(fake))
    d_grads = d_tape.gradient(d_loss, d.trainable_variables)
    g_grads, _ = tf.clip_by_global_norm(g_tape.gradient(g_loss, g.trainable_variables), 0.5)
    d_opt.apply_gradients(zip(d_grads, d.trainable_variables))
    g_opt.apply_gradients(zip(g_grads, g.trainable_variables))
    return float(d_loss), float(g_loss)


for _ in range(3):
    print(step(tf.random.normal((16, 2)) + 2))
