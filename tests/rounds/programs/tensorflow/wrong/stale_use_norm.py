import tensorflow as tf

tf.random.set_seed(3)
w1 = tf.Variable(tf.random.normal((4, 16)))
w2 = tf.Variable(tf.random.normal((16, 1)))
variables = [w1, w2]
optimizer = tf.keras.optimizers.SGD(0.02, momentum=0.9)


def loss_fn(x):
    return tf.reduce_mean(tf.square(tf.nn.relu(x @ w1) @ w2 - 10 * x[:, :1]))


norm = None
for step in range(6):
    x = tf.random.normal((32, 4)) * (1 + step)
    with tf.GradientTape() as tape:
        loss = loss_fn(x)
    grads = tape.gradient(loss, variables)
    if norm is None:
        norm = tf.linalg.global_norm(grads)
    grads, _ = tf.clip_by_global_norm(grads, 1.0, use_norm=norm)
    optimizer.apply_gradients(zip(grads, variables))
    print(step, float(loss), float(tf.linalg.global_norm(grads)))
