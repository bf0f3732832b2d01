import keras
base = keras.optimizers.Adam(1e-3, global_clipnorm=1.0)
model = keras.Sequential([keras.layers.Dense(1)])
model.compile(optimizer=keras.optimizers.Adam.from_config(base.get_config()), loss="mse")
