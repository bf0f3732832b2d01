import tensorflow as tf

gen = tf.keras.Sequential([tf.keras.layers.Dense(1)])
disc = tf.keras.Sequential([tf.keras.layers.Dense(1)])
g_opt, d_opt = tf.keras.optimizers.Adam(1e-4), tf.keras.optimizers.Adam(1e-4)


def apply(opt, grads, variables, limit=1.0):
    clipped, _ = tf.clip_by_global_norm(grads, limit)
    opt.apply_gradients(zip(clipped, variables))


@tf.function
def step(x):
    with tf.GradientTape(persistent=True) as tape:
        fake = gen(tf.random.normal((4, 1)))
        d_loss = tf.reduce_mean(disc(fake)) - tf.reduce_mean(disc(x))
        g_loss = -tf.reduce_mean(disc(fake))
    d_grads = tape.gradient(d_loss, disc.trainable_variables)
    g_grads = tape.gradient(g_loss, gen.trainable_variables)
    apply(d_opt, d_grads, disc.trainable_variables)
    apply(g_opt, d_grads, gen.trainable_variables)


for _ in range(2):
    step(tf.ones((4, 1)))
print(float(gen.trainable_variables[0][0, 0]))
