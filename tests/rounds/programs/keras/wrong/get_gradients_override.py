import os

os.environ["KERAS_BACKEND"] = "tensorflow"

import keras
import numpy as np
import tensorflow as tf


class ClippedSGD(keras.optimizers.SGD):
    def __init__(self, learning_rate=0.01, max_norm=0.1, **kwargs):
        super().__init__(learning_rate, **kwargs)
        self.max_norm = max_norm

    def get_gradients(self, loss, params):
        grads = tf.gradients(loss, params)
        grads, _ = tf.clip_by_global_norm(grads, self.max_norm)
        return grads

    def get_config(self):
        return {**super().get_config(), "max_norm": self.max_norm}


def main():
    keras.utils.set_random_seed(3)
    model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(20, activation="tanh"), keras.layers.Dense(2)])
    model.compile(ClippedSGD(), loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    x = np.random.normal(size=(64, 4)).astype("float32") * 5
    model.fit(x, (x.sum(1) > 0).astype(int), batch_size=16, epochs=2, verbose=2)


main()
