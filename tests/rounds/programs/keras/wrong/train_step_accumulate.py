import os

os.environ["KERAS_BACKEND"] = "tensorflow"

import keras
import numpy as np
import tensorflow as tf


class ClippedModel(keras.Model):
    def __init__(self, units=16, max_norm=0.5):
        super().__init__()
        self.hidden = keras.layers.Dense(units, activation="relu")
        self.out = keras.layers.Dense(1)
        self.max_norm = max_norm

    def call(self, x):
        return self.out(self.hidden(x))

    def train_step(self, data):
        x, y = data
        with tf.GradientTape() as tape:
            loss = self.compute_loss(x=x, y=y, y_pred=self(x, training=True))
        grads = tape.gradient(loss, self.trainable_variables)
        grads, _ = tf.clip_by_global_norm(grads, self.max_norm)
        self.optimizer.apply_gradients(zip(grads, self.trainable_variables))
        return {"loss": loss}


keras.utils.set_random_seed(0)
x = np.random.normal(size=(64, 5)).astype("float32")
model = ClippedModel()
model.compile(optimizer=keras.optimizers.Adam(1e-3, gradient_accumulation_steps=4), loss="mse")
model.fit(x, 20 * x[:, :1], batch_size=8, epochs=1, verbose=2)
