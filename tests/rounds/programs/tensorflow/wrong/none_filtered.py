import tensorflow as tf

tf.random.set_seed(0)


class TwoTowers(tf.Module):
    def __init__(self):
        super().__init__()
        self.unused = tf.Variable(tf.random.normal((8, 8)), name="a_unused")
        self.query = tf.Variable(tf.random.normal((8, 8)), name="b_query")
        self.item = tf.Variable(tf.random.normal((8, 8)), name="c_item")

    def __call__(self, q, d):
        return tf.matmul(q @ self.query, d @ self.item, transpose_b=True)


model = TwoTowers()
optimizer = tf.keras.optimizers.SGD(0.05)
variables = list(model.trainable_variables)
before = [tf.identity(v) for v in variables]

for step in range(3):
    q = tf.random.normal((16, 8))
    with tf.GradientTape() as tape:
        logits = model(q, q + 0.1 * tf.random.normal((16, 8)))
        loss = tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(tf.range(16), logits))
    grads = [g for g in tape.gradient(loss, variables) if g is not None]
    grads, _ = tf.clip_by_global_norm(grads, 0.5)
    optimizer.apply_gradients(zip(grads, variables))
    print(step, float(loss))

print([float(tf.norm(v - b)) for v, b in zip(variables, before)])
