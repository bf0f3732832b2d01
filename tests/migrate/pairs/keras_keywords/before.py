import keras
import tensorflow as tf
from keras import optimizers
from keras.optimizers import RMSprop
from tensorflow.keras.optimizers import SGD as GradientDescent

a = keras.optimizers.Adam(1e-3, clipnorm=1.0)
b = optimizers.SGD(learning_rate=0.1, global_clipnorm=5, momentum=0.9)
c = RMSprop(
    learning_rate=0.1,
    clipvalue=0.5,  # each element
)
d = tf.keras.optimizers.AdamW(clipnorm=1.)
e = GradientDescent(clipnorm=None)
f = GradientDescent(clipnorm=0)
model.compile(loss="mse", optimizer=keras.optimizers.Adam(clipvalue=1.0, **settings))
