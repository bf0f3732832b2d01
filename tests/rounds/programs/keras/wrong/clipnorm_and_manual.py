import os

os.environ["KERAS_BACKEND"] = "tensorflow"

import keras
import numpy as np
import tensorflow as tf


class Seq(keras.Model):
    def __init__(self, clip=5.0):
        super().__init__()
        self.rnn = keras.layers.GRU(12)
        self.out = keras.layers.Dense(1)
        self.clip = clip

    def call(self, x):
        return self.out(self.rnn(x))

    def train_step(self, data):
        x, y = data
        with tf.GradientTape() as tape:
            loss = self.compute_loss(y=y, y_pred=self(x, training=True))
        variables = self.trainable_variables
        grads, norm = tf.clip_by_global_norm(tape.gradient(loss, variables), self.clip)
        self.optimizer.apply_gradients(zip(grads, variables))
        return {"loss": loss, "grad_norm": norm}


keras.utils.set_random_seed(4)
x = np.random.normal(size=(32, 8, 2)).astype("float32")
model = Seq()
model.compile(optimizer=keras.optimizers.RMSprop(1e-3, clipnorm=0.1), loss="mae")
model.fit(x, x.sum((1, 2))[:, None], batch_size=8, epochs=1, verbose=2)
