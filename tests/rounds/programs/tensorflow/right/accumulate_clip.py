import tensorflow as tf


class MicroBatches:
    def __init__(self, model, optimizer, every=2, limit=1.0):
        self.model, self.optimizer = model, optimizer
        self.every, self.limit, self.seen = every, limit, 0
        self.sums = [tf.zeros_like(v) for v in model.trainable_variables]

    def __call__(self, x, y):
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(tf.keras.losses.mse(y, self.model(x, training=True)))
        grads = tape.gradient(loss, self.model.trainable_variables)
        self.sums = [a + g for a, g in zip(self.sums, grads)]
        self.seen += 1
        if self.seen == self.every:
            self.flush()
        return float(loss)

    def flush(self):
        clipped, _ = tf.clip_by_global_norm([a / float(self.every) for a in self.sums], self.limit)
        self.optimizer.apply_gradients(zip(clipped, self.model.trainable_variables))
        self.sums = [tf.zeros_like(a) for a in self.sums]
        self.seen = 0


tf.random.set_seed(0)
model = tf.keras.Sequential([tf.keras.Input((3,)), tf.keras.layers.Dense(10, "gelu"), tf.keras.layers.Dense(1)])
step = MicroBatches(model, tf.keras.optimizers.Adam(1e-2))
for i in range(6):
    x = tf.random.normal((16, 3))
    print(i, step(x, 7 * x[:, 1:2]))
