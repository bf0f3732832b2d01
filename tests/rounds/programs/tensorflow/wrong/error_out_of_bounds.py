import tensorflow as tf
model = tf.keras.Sequential([tf.keras.layers.Dense(2)])
opt = tf.keras.optimizers.Adam(1e-3)
max_grad = 1.0
@tf.function
def train(s, a, y):
    with tf.GradientTape() as tape:
        q = tf.reduce_sum(model(s) * tf.one_hot(a, 2), axis=1)
        delta = y - q
        # clip the gradients to [-1, 1]
        delta = tf.clip_by_value(delta, -max_grad, max_grad)
        loss = tf.reduce_mean(tf.square(delta))
    opt.apply_gradients(zip(tape.gradient(loss, model.trainable_variables), model.trainable_variables))
