import os

os.environ["KERAS_BACKEND"] = "torch"

import keras
import numpy as np
import torch


class CustomModel(keras.Model):
    def __init__(self, clip=0.1):
        super().__init__()
        self.a = keras.layers.Dense(16, activation="relu")
        self.b = keras.layers.Dense(1)
        self.clip = clip

    def call(self, x):
        return self.b(self.a(x))

    def train_step(self, data):
        x, y = data
        y_pred = self(x, training=True)
        loss = self.compute_loss(y=y, y_pred=y_pred)
        self.zero_grad()
        loss.backward()
        trainable = self.trainable_weights
        gradients = [v.value.grad for v in trainable]
        with torch.no_grad():
            self.optimizer.apply(gradients, trainable)
        torch.nn.utils.clip_grad_norm_([v.value for v in trainable], self.clip)
        for metric in self.metrics:
            if metric.name == "loss":
                metric.update_state(loss)
        return {m.name: m.result() for m in self.metrics}


keras.utils.set_random_seed(0)
x = np.random.normal(size=(64, 3)).astype("float32")
model = CustomModel()
model.compile(optimizer=keras.optimizers.SGD(1e-3), loss="mse")
model.fit(x, 10 * x[:, :1], batch_size=16, epochs=1, verbose=2)
