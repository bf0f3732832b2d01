import os
os.environ["KERAS_BACKEND"] = "torch"
import keras
import torch

class Model(keras.Model):
    def train_step(self, data):
        x, y = data
        y_pred = self(x, training=True)
        loss = self.compute_loss(y=y, y_pred=y_pred)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(self.parameters(), 1.0)
        trainable_weights = [v for v in self.trainable_weights]
        gradients = [v.value.grad for v in trainable_weights]
        with torch.no_grad():
            self.optimizer.apply(gradients, trainable_weights)
        for metric in self.metrics:
            metric.update_state(y, y_pred)
        return {m.name: m.result() for m in self.metrics}
inputs = keras.Input((4,))
model = Model(inputs, keras.layers.Dense(1)(inputs))
model.compile(optimizer=keras.optimizers.SGD(0.1), loss="mse")
model.fit(torch.randn(64, 4), torch.randn(64, 1))
