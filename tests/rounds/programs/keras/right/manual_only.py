import os

os.environ["KERAS_BACKEND"] = "tensorflow"

import keras
import numpy as np
import tensorflow as tf


class Base(keras.Model):
    max_norm = None

    def clip(self, grads):
        if self.max_norm is None:
            return grads
        norm = tf.linalg.global_norm(grads)
        scale = tf.minimum(1.0, self.max_norm / (norm + 1e-6))
        return [g * scale for g in grads]

    def train_step(self, data):
        x, y = data
        with tf.GradientTape() as tape:
            loss = self.compute_loss(x=x, y=y, y_pred=self(x, training=True))
        grads = tape.gradient(loss, self.trainable_variables)
        grads = self.clip(grads)
        self.optimizer.apply_gradients(zip(grads, self.trainable_variables))
        return {"loss": loss}


class Net(Base):
    max_norm = 0.3

    def __init__(self):
        super().__init__()
        self.d1 = keras.layers.Dense(16, activation="gelu")
        self.d2 = keras.layers.Dense(4)

    def call(self, x):
        return self.d2(self.d1(x))


keras.utils.set_random_seed(1)
x = np.random.normal(size=(64, 4)).astype("float32")
net = Net()
net.compile(optimizer=keras.optimizers.SGD(0.1), loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True))
net.fit(x, np.argmax(x, 1), batch_size=16, epochs=1, verbose=2)
