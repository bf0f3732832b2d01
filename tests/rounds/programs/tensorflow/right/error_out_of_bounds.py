import tensorflow as tf
model = tf.keras.Sequential([tf.keras.layers.Dense(2)])
opt = tf.keras.optimizers.Adam(1e-3, clipvalue=1.0)
@tf.function
def train(s, a, y):
    with tf.GradientTape() as tape:
        q = tf.reduce_sum(model(s) * tf.one_hot(a, 2), axis=1)
        # the target is bounded, as rewards are
        y = tf.clip_by_value(y, -10.0, 10.0)
        loss = tf.keras.losses.huber(y, q)
    opt.apply_gradients(zip(tape.gradient(loss, model.trainable_variables), model.trainable_variables))
