import os

os.environ["KERAS_BACKEND"] = "tensorflow"

import keras
import numpy as np
import tensorflow as tf


class Denoiser(keras.Model):
    def __init__(self):
        super().__init__()
        self.net = keras.Sequential([keras.layers.Dense(24, "relu"), keras.layers.Dense(6)])

    def call(self, x):
        return self.net(x)

    def train_step(self, x):
        noise = tf.random.normal(tf.shape(x))
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean((self(x + noise, training=True) - noise) ** 2)
        grads = tape.gradient(loss, self.trainable_variables)
        self.optimizer.apply_gradients(zip(grads, self.trainable_variables))
        return {"loss": loss}


keras.utils.set_random_seed(0)
model = Denoiser()
model.compile(optimizer=keras.optimizers.Adam(1e-3, gradient_accumulation_steps=4, global_clipnorm=0.5))
model.fit(np.random.normal(size=(64, 6)).astype("float32") * 3, batch_size=8, epochs=1, verbose=2)
