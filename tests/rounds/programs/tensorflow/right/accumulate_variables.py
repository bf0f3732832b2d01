import tensorflow as tf


class Accumulate:
    def __init__(self, model, opt, every=4, max_norm=1.0):
        self.model, self.opt, self.every, self.max_norm = model, opt, every, max_norm
        self.grads = [tf.Variable(tf.zeros_like(v), trainable=False) for v in model.trainable_variables]
        self.n = tf.Variable(0)

    def micro(self, x, y):
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean((self.model(x) - y) ** 2) / self.every
        for a, g in zip(self.grads, tape.gradient(loss, self.model.trainable_variables)):
            a.assign_add(g)
        self.n.assign_add(1)
        if self.n == self.every:
            self.flush()

    def flush(self):
        grads, _ = tf.clip_by_global_norm(self.grads, self.max_norm)
        self.opt.apply_gradients(zip(grads, self.model.trainable_variables))
        for a in self.grads:
            a.assign(tf.zeros_like(a))
        self.n.assign(0)


m = tf.keras.Sequential([tf.keras.Input((2,)), tf.keras.layers.Dense(1)])
acc = Accumulate(m, tf.keras.optimizers.SGD(0.1))
for _ in range(8):
    acc.micro(tf.ones((1, 2)), tf.ones((1, 1)))
print(float(m.trainable_variables[0][0, 0]))
