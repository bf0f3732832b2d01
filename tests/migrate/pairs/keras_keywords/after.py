import keras
import tensorflow as tf
from gradclip.backends.keras import clipped
from gradclip.dialects import keras as keras_rules
from keras import optimizers
from keras.optimizers import RMSprop
from tensorflow.keras.optimizers import SGD as GradientDescent

a = clipped(keras.optimizers.Adam(1e-3), keras_rules.clipnorm(1.0))
b = clipped(
    optimizers.SGD(learning_rate=0.1, momentum=0.9),
    keras_rules.global_clipnorm(5)
)
c = clipped(RMSprop(
    learning_rate=0.1,
    # each element
), keras_rules.clipvalue(0.5))
d = clipped(tf.keras.optimizers.AdamW(), keras_rules.clipnorm(1.))
e = GradientDescent(clipnorm=None)
f = GradientDescent(clipnorm=0)
model.compile(loss="mse", optimizer=clipped(
    keras.optimizers.Adam(**settings),
    keras_rules.clipvalue(1.0)
))
