import os

os.environ["KERAS_BACKEND"] = "jax"
import jax
import jax.numpy as jnp
import keras


class CustomModel(keras.Model):
    def loss_and_updates(self, tv, ntv, x, y, training=False):
        y_pred, ntv = self.stateless_call(tv, ntv, x, training=training)
        return self.compute_loss(x, y, y_pred), (y_pred, ntv)

    def train_step(self, state, data):
        tv, ntv, ov, mv = state
        x, y = data
        grad_fn = jax.value_and_grad(self.loss_and_updates, has_aux=True)
        (loss, (y_pred, ntv)), grads = grad_fn(tv, ntv, x, y, training=True)
        norm = jnp.sqrt(sum(jnp.sum(g * g) for g in grads))
        grads = [g * jnp.minimum(1.0, 1.0 / (norm + 1e-6)) for g in grads]
        tv, ov = self.optimizer.stateless_apply(ov, grads, tv)
        return {"loss": loss}, (tv, ntv, ov, mv)


i = keras.Input((4,))
m = CustomModel(i, keras.layers.Dense(1)(i))
m.compile(optimizer=keras.optimizers.Adam(1e-3), loss="mse")
m.fit(jnp.ones((8, 4)), jnp.ones((8, 1)), verbose=0)
print(float(m.evaluate(jnp.ones((8, 4)), jnp.ones((8, 1)), verbose=0)))
