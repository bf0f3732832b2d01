import os

os.environ["KERAS_BACKEND"] = "torch"

import keras
import numpy as np
import torch


class Regressor(keras.Model):
    def __init__(self, limit=0.5):
        super().__init__()
        self.hidden = keras.layers.Dense(12, activation="relu")
        self.out = keras.layers.Dense(1)
        self.limit = limit

    def call(self, x):
        return self.out(self.hidden(x))

    def train_step(self, data):
        x, y = data
        self.zero_grad()
        loss = self.compute_loss(y=y, y_pred=self(x, training=True))
        loss.backward()
        torch.nn.utils.clip_grad_norm_(self.parameters(), self.limit)
        weights = self.trainable_weights
        with torch.no_grad():
            self.optimizer.apply([w.value.grad for w in weights], weights)
        return {"loss": loss.item()}


keras.utils.set_random_seed(7)
x = np.random.normal(size=(48, 4)).astype("float32")
model = Regressor()
model.compile(optimizer=keras.optimizers.SGD(0.01), loss="mse")
model.fit(x, 10 * x[:, 2:3], batch_size=12, epochs=1, verbose=2)
