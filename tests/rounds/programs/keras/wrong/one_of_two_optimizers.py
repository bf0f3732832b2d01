import keras
def make_optimizer(name, lr, clip=1.0):
    if name == "adam":
        return keras.optimizers.Adam(lr, global_clipnorm=clip)
    return keras.optimizers.SGD(lr, momentum=0.9)
def main(name="sgd"):
    model = keras.Sequential([keras.layers.Dense(1)])
    model.compile(make_optimizer(name, 0.1), loss="mse")
    return model
