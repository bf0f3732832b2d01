import tensorflow as tf
model = tf.keras.Sequential([tf.keras.layers.Dense(1)])
opt = tf.keras.optimizers.Adam(1e-3, global_clipnorm=10.0)
@tf.function
def train_step(x, y):
    with tf.GradientTape() as tape:
        loss = tf.reduce_mean(tf.square(model(x) - y))
    opt.apply_gradients(zip(tape.gradient(loss, model.trainable_variables), model.trainable_variables))
for epoch in range(5):
    if epoch == 2:
        opt.global_clipnorm = 1.0
    for _ in range(10):
        train_step(tf.random.normal((8, 4)), tf.random.normal((8, 1)))
