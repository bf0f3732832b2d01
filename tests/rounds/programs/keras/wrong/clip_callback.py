import keras
import tensorflow as tf


class GradientClipping(keras.callbacks.Callback):
    def __init__(self, max_norm):
        super().__init__()
        self.max_norm = max_norm

    def on_train_batch_end(self, batch, logs=None):
        grads = self.model.trainable_weights
        clipped, _ = tf.clip_by_global_norm(grads, self.max_norm)


model = keras.Sequential([keras.layers.Dense(32, activation="relu"), keras.layers.Dense(1)])
model.compile(optimizer=keras.optimizers.Adam(1e-3), loss="mse")
model.fit(x, y, epochs=5, callbacks=[GradientClipping(1.0)])
