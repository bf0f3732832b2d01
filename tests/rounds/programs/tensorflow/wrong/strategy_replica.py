import argparse

import tensorflow as tf

parser = argparse.ArgumentParser()
parser.add_argument("--batch", type=int, default=16)
parser.add_argument("--clip", type=float, default=0.1)
parser.add_argument("--steps", type=int, default=3)
args = parser.parse_args()

tf.config.set_logical_device_configuration(
    tf.config.list_physical_devices("CPU")[0], [tf.config.LogicalDeviceConfiguration()] * 2
)
strategy = tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"])
dataset = tf.data.Dataset.from_tensor_slices((tf.random.normal((64, 5)), tf.random.normal((64, 1)))).repeat()
dist_dataset = strategy.experimental_distribute_dataset(dataset.batch(args.batch))

with strategy.scope():
    model = tf.keras.Sequential([tf.keras.Input((5,)), tf.keras.layers.Dense(8, "tanh"), tf.keras.layers.Dense(1)])
    optimizer = tf.keras.optimizers.SGD(0.01)


def step_fn(inputs):
    x, y = inputs
    with tf.GradientTape() as tape:
        per_example = tf.reduce_sum(tf.square(model(x, training=True) - y), axis=-1)
        loss = tf.nn.compute_average_loss(per_example, global_batch_size=args.batch)
    gradients = tape.gradient(loss, model.trainable_variables)
    gradients, _ = tf.clip_by_global_norm(gradients, args.clip)
    optimizer.apply_gradients(zip(gradients, model.trainable_variables))
    return loss


@tf.function
def train_step(inputs):
    losses = strategy.run(step_fn, args=(inputs,))
    return strategy.reduce(tf.distribute.ReduceOp.SUM, losses, axis=None)


iterator = iter(dist_dataset)
for i in range(args.steps):
    print(i, train_step(next(iterator)).numpy())
