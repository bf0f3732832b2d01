import os
os.environ["KERAS_BACKEND"] = "torch"
import keras
import torch
class Net(keras.Model):
    def __init__(self, limit):
        super().__init__()
        self.dense = keras.layers.Dense(1)
        self.limit = limit
    def call(self, x):
        return self.dense(x)
    def train_step(self, data):
        x, y = data
        loss = keras.ops.mean((self(x) - y) ** 2)
        loss.backward()
        grads = [v.value.grad for v in self.trainable_weights]
        norm = torch.sqrt(sum((g ** 2).sum() for g in grads))
        scale = torch.clamp(self.limit / (norm + 1e-6), max=1.0)
        grads = [g * scale for g in grads]
        with torch.no_grad():
            self.optimizer.apply(grads, self.trainable_weights)
        return {"loss": loss}
