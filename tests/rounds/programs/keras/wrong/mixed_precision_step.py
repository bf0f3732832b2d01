import os

os.environ["KERAS_BACKEND"] = "tensorflow"

import keras
import numpy as np
import tensorflow as tf

keras.utils.set_random_seed(2)
keras.mixed_precision.set_dtype_policy("mixed_float16")


class Contrastive(keras.Model):
    def __init__(self, dim=8):
        super().__init__()
        self.encoder = keras.Sequential([keras.layers.Dense(16, "relu"), keras.layers.Dense(dim, dtype="float32")])
        self.tracker = keras.metrics.Mean(name="loss")

    def call(self, x):
        return self.encoder(x)

    def train_step(self, data):
        a, b = data
        with tf.GradientTape() as tape:
            za, zb = self(a, training=True), self(b, training=True)
            logits = tf.matmul(za, zb, transpose_b=True)
            labels = tf.range(tf.shape(logits)[0])
            loss = tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels, logits))
            scaled = self.optimizer.scale_loss(loss)
        grads = tape.gradient(scaled, self.trainable_variables)
        grads, norm = tf.clip_by_global_norm(grads, 1.0)
        self.optimizer.apply_gradients(zip(grads, self.trainable_variables))
        self.tracker.update_state(loss)
        return {"loss": self.tracker.result(), "norm": norm}


x = np.random.normal(size=(64, 6)).astype("float32")
model = Contrastive()
model.compile(optimizer="adam")
model.fit(x, x + 0.1, batch_size=16, epochs=1, verbose=2)
