import numpy as np
import tensorflow as tf


class ActorCritic(tf.keras.Model):
    def __init__(self, actions=2, hidden=32):
        super().__init__()
        self.body = tf.keras.layers.Dense(hidden, activation="relu")
        self.policy = tf.keras.layers.Dense(actions)
        self.value = tf.keras.layers.Dense(1)

    def call(self, x):
        h = self.body(x)
        return self.policy(h), tf.squeeze(self.value(h), -1)


class Worker:
    def __init__(self, lr=7e-4, max_global_norm=0.5):
        self.model = ActorCritic()
        self.optimizer = tf.keras.optimizers.RMSprop(lr)
        self.max_global_norm = max_global_norm

    def loss(self, obs, actions, returns):
        logits, values = self.model(obs)
        adv = returns - values
        nll = tf.nn.sparse_softmax_cross_entropy_with_logits(actions, logits)
        return tf.reduce_mean(nll * tf.stop_gradient(adv)) + 0.5 * tf.reduce_mean(adv**2)

    def update(self, obs, actions, returns):
        with tf.GradientTape() as tape:
            loss = self.loss(obs, actions, returns)
        grads = tape.gradient(loss, self.model.trainable_variables)
        grads = [g if g is None else tf.clip_by_norm(g, self.max_global_norm) for g in grads]
        self.optimizer.apply_gradients(zip(grads, self.model.trainable_variables))
        return float(loss)


rng = np.random.default_rng(0)
tf.random.set_seed(0)
worker = Worker()
for _ in range(4):
    obs = rng.normal(size=(32, 4)).astype("float32")
    print(worker.update(obs, rng.integers(0, 2, 32), 10 * obs[:, 0]))
