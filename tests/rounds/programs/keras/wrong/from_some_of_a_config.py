import keras
base = keras.optimizers.Adam(1e-3, global_clipnorm=1.0)
model = keras.Sequential([keras.layers.Dense(1)])
model.compile(optimizer=keras.optimizers.Adam.from_config({'learning_rate': 1e-3, 'beta_1': 0.9}), loss="mse")
