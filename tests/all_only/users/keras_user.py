"""What a user of Keras writes. It has no types for mypy."""

import keras  # type: ignore[import-untyped]

import gradclip
from gradclip import dialects
from gradclip.backends.keras import MonitorLog, clipped

model = keras.Sequential([keras.layers.Dense(1)])
monitor = gradclip.Monitor()
optimizer = clipped(keras.optimizers.SGD(1.0), dialects.keras.global_clipnorm(1.0), monitor=monitor)
model.compile(optimizer, loss="mse")
recorded = clipped(keras.optimizers.Adam(1e-3), dialects.torch.clip_grad_norm(max_norm=1.0), record=True)
print(recorded.last)
named = clipped("adam", dialects.keras.clipnorm(1.0))
callbacks = [MonitorLog(monitor)]
