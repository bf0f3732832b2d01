import tensorflow as tf


class GAN:
    def __init__(self, g, d):
        self.g, self.d = g, d
        self.g_opt, self.d_opt = (tf.keras.optimizers.Adam(lr) for lr in (1e-4, 4e-4))

    @staticmethod
    def clipped(tape, loss, model, limit):
        grads = tape.gradient(loss, model.trainable_variables)
        grads, _ = tf.clip_by_global_norm(grads, limit)
        return zip(grads, model.trainable_variables)

    def step(self, real):
        with tf.GradientTape(persistent=True) as tape:
            fake = self.g(tf.random.normal((4, 2)))
            g_loss = -tf.reduce_mean(self.d(fake))
            d_loss = tf.reduce_mean(self.d(fake)) - tf.reduce_mean(self.d(real))
        d_pairs = self.clipped(tape, d_loss, self.d, 1.0)
        g_pairs = self.clipped(tape, g_loss, self.g, 1.0)
        del tape
        self.d_opt.apply_gradients(d_pairs)
        self.g_opt.apply_gradients(g_pairs)


gan = GAN(tf.keras.Sequential([tf.keras.layers.Dense(3)]), tf.keras.Sequential([tf.keras.layers.Dense(1)]))
for _ in range(3):
    gan.step(tf.ones((4, 3)))
print(float(gan.d.trainable_variables[0][0, 0]))
