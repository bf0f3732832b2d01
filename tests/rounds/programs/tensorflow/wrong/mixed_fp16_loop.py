import tensorflow as tf
from tensorflow import keras

CLIP_NORM = 1.0
tf.random.set_seed(1)

model = keras.Sequential([keras.Input((12,)), keras.layers.Dense(32, activation="relu"), keras.layers.Dense(3)])
optimizer = keras.mixed_precision.LossScaleOptimizer(keras.optimizers.Adam(1e-3), initial_scale=2.0**10)
loss_fn = keras.losses.SparseCategoricalCrossentropy(from_logits=True)


@tf.function
def train_step(x, y):
    with tf.GradientTape() as tape:
        loss = loss_fn(y, model(x, training=True))
        scaled = optimizer.scale_loss(loss)
    grads = tape.gradient(scaled, model.trainable_variables)
    grads, norm = tf.clip_by_global_norm(grads, CLIP_NORM)
    optimizer.apply_gradients(zip(grads, model.trainable_variables))
    return loss, norm


def main():
    for step in range(4):
        x = tf.random.normal((16, 12))
        y = tf.cast(x[:, 0] > 0, tf.int32)
        loss, norm = train_step(x, y)
        print(step, float(loss), float(norm))


main()
