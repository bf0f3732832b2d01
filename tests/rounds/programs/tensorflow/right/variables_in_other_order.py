import tensorflow as tf

opt = tf.keras.optimizers.Adam()


def train_step(x, y):
    with tf.GradientTape() as tape:
        pred = head(backbone(x))
        loss = tf.reduce_mean(tf.keras.losses.mse(y, pred))
    variables = backbone.trainable_variables + head.trainable_variables
    grads = tape.gradient(loss, variables)
    grads, norm = tf.clip_by_global_norm(grads, 1.0)
    opt.apply_gradients(zip(grads, backbone.trainable_variables + head.trainable_variables))
    return loss
