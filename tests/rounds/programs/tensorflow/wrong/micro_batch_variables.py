import tensorflow as tf

ACCUM = 4
model = tf.keras.Sequential([tf.keras.layers.Dense(16, activation="tanh"), tf.keras.layers.Dense(1)])
model.build((None, 4))
opt = tf.keras.optimizers.Adam(1e-3)
accum = [tf.Variable(tf.zeros_like(v), trainable=False) for v in model.trainable_variables]


@tf.function
def micro_step(x, y):
    with tf.GradientTape() as tape:
        loss = tf.reduce_mean((model(x, training=True) - y) ** 2) / ACCUM
    grads = tape.gradient(loss, model.trainable_variables)
    grads, _ = tf.clip_by_global_norm(grads, 1.0)
    for a, g in zip(accum, grads):
        a.assign_add(g)
    return loss


@tf.function
def apply():
    opt.apply_gradients(zip(accum, model.trainable_variables))
    for a in accum:
        a.assign(tf.zeros_like(a))


ds = tf.data.Dataset.from_tensor_slices((tf.ones((64, 4)), tf.ones((64, 1)))).batch(4)
for i, (x, y) in enumerate(ds):
    micro_step(x, y)
    if (i + 1) % ACCUM == 0:
        apply()
print(float(tf.linalg.global_norm(model.trainable_variables)))
