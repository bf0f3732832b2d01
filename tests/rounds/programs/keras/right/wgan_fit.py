import os

os.environ["KERAS_BACKEND"] = "tensorflow"

import keras
import numpy as np
import tensorflow as tf


class WGAN(keras.Model):
    def __init__(self, latent=4):
        super().__init__()
        self.latent = latent
        self.critic = keras.Sequential([keras.Input((2,)), keras.layers.Dense(16, "relu"), keras.layers.Dense(1)])
        self.generator = keras.Sequential([keras.Input((latent,)), keras.layers.Dense(16, "relu"), keras.layers.Dense(2)])
        self.critic_optimizer = keras.optimizers.Adam(1e-4, beta_1=0.5)
        self.generator_optimizer = keras.optimizers.Adam(1e-4, beta_1=0.5, clipnorm=1.0)

    def penalty(self, real, fake):
        mix = real + tf.random.uniform((tf.shape(real)[0], 1)) * (fake - real)
        with tf.GradientTape() as tape:
            tape.watch(mix)
            score = self.critic(mix)
        return tf.reduce_mean((tf.norm(tape.gradient(score, mix), axis=1) - 1) ** 2)

    def train_step(self, real):
        z = tf.random.normal((tf.shape(real)[0], self.latent))
        with tf.GradientTape() as tape:
            fake = self.generator(z)
            c_loss = tf.reduce_mean(self.critic(fake)) - tf.reduce_mean(self.critic(real)) + 10 * self.penalty(real, fake)
        grads = tape.gradient(c_loss, self.critic.trainable_variables)
        self.critic_optimizer.apply_gradients(zip(grads, self.critic.trainable_variables))
        with tf.GradientTape() as tape:
            g_loss = -tf.reduce_mean(self.critic(self.generator(z)))
        grads = tape.gradient(g_loss, self.generator.trainable_variables)
        self.generator_optimizer.apply_gradients(zip(grads, self.generator.trainable_variables))
        return {"c_loss": c_loss, "g_loss": g_loss}


keras.utils.set_random_seed(0)
gan = WGAN()
gan.compile()
gan.fit(np.random.normal(size=(64, 2)).astype("float32") + 3, batch_size=16, epochs=1, verbose=2)
