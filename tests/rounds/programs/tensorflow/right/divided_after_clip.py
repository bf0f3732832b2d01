import tensorflow as tf

class Accumulator:
    def __init__(self, model, opt, steps, limit):
        self.model, self.opt, self.steps, self.limit = model, opt, steps, limit
        self.sums = [tf.Variable(tf.zeros_like(v), trainable=False) for v in model.trainable_variables]
    @tf.function
    def accumulate(self, x, y):
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(tf.keras.losses.mse(y, self.model(x)))
        for s, g in zip(self.sums, tape.gradient(loss, self.model.trainable_variables)):
            s.assign_add(g)
    @tf.function
    def apply(self):
        mean = [s / tf.cast(self.steps, s.dtype) for s in self.sums]
        clipped, _ = tf.clip_by_global_norm(mean, self.limit)
        self.opt.apply_gradients(zip(clipped, self.model.trainable_variables))
        for s in self.sums:
            s.assign(tf.zeros_like(s))
def main(data, model):
    acc = Accumulator(model, tf.keras.optimizers.SGD(0.1), 8, 1.0)
    for i, (x, y) in enumerate(data):
        acc.accumulate(x, y)
        if (i + 1) % 8 == 0:
            acc.apply()
