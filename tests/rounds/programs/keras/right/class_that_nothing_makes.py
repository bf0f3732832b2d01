import keras
import tensorflow as tf
class ClippedModel(keras.Model):
    def train_step(self, data):
        x, y = data
        with tf.GradientTape() as tape:
            loss = self.compute_loss(x, y, self(x, training=True))
        grads = tape.gradient(loss, self.trainable_variables)
        grads, _ = tf.clip_by_global_norm(grads, 1.0)
        self.optimizer.apply_gradients(zip(grads, self.trainable_variables))
        return {"loss": loss}
inputs = keras.Input((4,))
outputs = keras.layers.Dense(1)(inputs)
model = ClippedModel(inputs, outputs)
model.compile(optimizer="adam", loss="mse")
model.fit(tf.random.normal((32, 4)), tf.random.normal((32, 1)))
