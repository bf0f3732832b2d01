import tensorflow as tf


class Agent:
    def __init__(self, net, lr, clip):
        self.net = net
        self.optimizer = tf.keras.optimizers.Adam(lr)
        self.clip = clip

    def _clip(self, grads):
        if self.clip is None:
            return grads
        return tf.clip_by_global_norm(grads, self.clip)

    def learn(self, obs, act, adv):
        with tf.GradientTape() as tape:
            logp = self.net.log_prob(obs, act)
            loss = -tf.reduce_mean(logp * adv)
        grads = tape.gradient(loss, self.net.trainable_variables)
        self.optimizer.apply_gradients(zip(self._clip(grads), self.net.trainable_variables))
