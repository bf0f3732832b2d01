from types import SimpleNamespace

import tensorflow as tf

flags = SimpleNamespace(batch_size=16, max_gradient_norm=0.5, learning_rate=0.01, steps=4)


def clip(grad):
    if grad is None:
        return None
    return tf.clip_by_value(grad, -flags.max_gradient_norm, flags.max_gradient_norm)


class Model(tf.Module):
    def __init__(self):
        super().__init__()
        self.w = tf.Variable(tf.random.normal((6, 12)))
        self.u = tf.Variable(tf.random.normal((12, 1)))

    def __call__(self, x):
        return tf.sigmoid(x @ self.w) @ self.u


def main():
    tf.random.set_seed(0)
    model = Model()
    optimizer = tf.keras.optimizers.SGD(flags.learning_rate)
    for step in range(flags.steps):
        x = tf.random.normal((flags.batch_size, 6))
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(tf.square(model(x) - 20 * x[:, :1]))
        variables = model.trainable_variables
        grads = [clip(g) for g in tape.gradient(loss, variables)]
        optimizer.apply_gradients(zip(grads, variables))
        print(step, float(loss))


main()
