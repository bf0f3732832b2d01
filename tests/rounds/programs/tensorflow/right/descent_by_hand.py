import tensorflow as tf

w = tf.Variable(tf.zeros((3, 1)))
steps = tf.Variable(0)
for _ in range(10):
    with tf.GradientTape() as tape:
        loss = tf.reduce_mean((tf.ones((4, 3)) @ w - 1.0) ** 2)
    (g,) = tape.gradient(loss, [w])
    w.assign_sub(0.1 * tf.clip_by_norm(g, 1.0))
    steps.assign_add(1)
print(float(w[0, 0]))
