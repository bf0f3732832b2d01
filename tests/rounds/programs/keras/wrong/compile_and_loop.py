import os

os.environ["KERAS_BACKEND"] = "tensorflow"

import keras
import numpy as np
import tensorflow as tf

keras.utils.set_random_seed(1)


def get_model():
    inputs = keras.Input((10,))
    x = keras.layers.Dense(32, activation="relu")(inputs)
    model = keras.Model(inputs, keras.layers.Dense(1)(x))
    model.compile(optimizer=keras.optimizers.Adam(1e-3, global_clipnorm=1.0), loss="mse", metrics=["mae"])
    return model


model = get_model()
trainer = keras.optimizers.SGD(0.01, momentum=0.9)
x = np.random.normal(size=(128, 10)).astype("float32")
y = 30 * x[:, :1]

for epoch in range(2):
    for i in range(0, len(x), 32):
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(keras.losses.mean_squared_error(y[i : i + 32], model(x[i : i + 32], training=True)))
        grads = tape.gradient(loss, model.trainable_weights)
        trainer.apply_gradients(zip(grads, model.trainable_weights))
    print(epoch, float(loss))
print(model.evaluate(x, y, verbose=0))
