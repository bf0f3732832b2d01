import keras
import tensorflow as tf
import tf_keras
from mylib.optimizers import Lookahead

a = keras.optimizers.SGD(lr=0.1, clipnorm=1.0)
b = tf.keras.optimizers.legacy.SGD(learning_rate=0.1, clipvalue=1.0)
c = tf_keras.optimizers.Adam(clipnorm=1.0)
d = keras.optimizers.Adam(clipnorm=args.clip)
e = keras.optimizers.Adam(clipnorm=1.0, clipvalue=0.5)
f = Lookahead(clipnorm=1.0)
g = Adam(clipnorm=1.0)
h = keras.optimizers.get({"class_name": "adam", "config": {"clipnorm": 1.0}})
