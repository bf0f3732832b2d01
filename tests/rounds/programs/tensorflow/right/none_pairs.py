import tensorflow as tf


class Model(tf.Module):
    def __init__(self):
        super().__init__()
        self.a = tf.Variable(tf.random.normal((4, 4)))
        self.b = tf.Variable(tf.random.normal((4, 4)))
        self.c = tf.Variable(tf.random.normal((4, 1)))

    def __call__(self, x, use_b):
        h = tf.nn.relu(x @ self.a)
        if use_b:
            h = tf.nn.relu(h @ self.b)
        return h @ self.c


tf.random.set_seed(1)
model = Model()
opt = tf.keras.optimizers.Adam(1e-2)
variables = list(model.trainable_variables)
opt.build(variables)
for i in range(4):
    x = tf.random.normal((32, 4))
    with tf.GradientTape() as tape:
        loss = tf.reduce_mean(tf.abs(model(x, use_b=i % 2 == 0) - 5 * x[:, :1]))
    grads = tape.gradient(loss, variables)
    pairs = [(g, v) for g, v in zip(grads, variables) if g is not None]
    kept, names = zip(*pairs)
    kept, _ = tf.clip_by_global_norm(kept, 0.3)
    opt.apply_gradients(zip(kept, names))
    print(i, float(loss))
