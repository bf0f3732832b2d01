import numpy as np
import tensorflow as tf

tf.random.set_seed(0)
rng = np.random.default_rng(0)
clip_value = 1.0

q = tf.keras.Sequential([tf.keras.Input((6, 4)), tf.keras.layers.LSTM(16), tf.keras.layers.Dense(2)])
target = tf.keras.models.clone_model(q)
target.set_weights(q.get_weights())
opt = tf.keras.optimizers.Adam(1e-3)


def train(states, actions, rewards, next_states):
    y = rewards + 0.99 * tf.reduce_max(target(next_states), axis=1)
    with tf.GradientTape() as tape:
        values = tf.reduce_sum(q(states) * tf.one_hot(actions, 2), axis=1)
        loss = tf.reduce_sum(tf.square(y - values))
    grads = tape.gradient(loss, q.trainable_variables)
    grads = [tf.clip_by_value(g, -clip_value, clip_value) for g in grads]
    opt.apply_gradients(zip(grads, q.trainable_variables))
    return float(loss)


for i in range(3):
    s, s2 = rng.normal(size=(2, 8, 6, 4)).astype("float32")
    print(i, train(s, rng.integers(0, 2, 8), rng.normal(size=8).astype("float32") * 10, s2))
    target.set_weights(q.get_weights())
