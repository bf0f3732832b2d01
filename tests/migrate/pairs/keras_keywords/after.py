import gradclip.backends.keras
import keras
import tensorflow as tf
from keras import optimizers
from keras.optimizers import RMSprop
from tensorflow.keras.optimizers import SGD as GradientDescent

a = gradclip.backends.keras.clipped(keras.optimizers.Adam(1e-3), gradclip.dialects.keras.clipnorm(1.0))
b = gradclip.backends.keras.clipped(optimizers.SGD(learning_rate=0.1, momentum=0.9), gradclip.dialects.keras.global_clipnorm(5))
c = gradclip.backends.keras.clipped(RMSprop(
    learning_rate=0.1,
    # each element
), gradclip.dialects.keras.clipvalue(0.5))
d = gradclip.backends.keras.clipped(tf.keras.optimizers.AdamW(), gradclip.dialects.keras.clipnorm(1.))
e = GradientDescent(clipnorm=None)
f = GradientDescent(clipnorm=0)
model.compile(loss="mse", optimizer=gradclip.backends.keras.clipped(keras.optimizers.Adam(**settings), gradclip.dialects.keras.clipvalue(1.0)))
