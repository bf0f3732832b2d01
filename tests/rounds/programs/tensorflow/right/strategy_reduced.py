import tensorflow as tf

tf.config.set_logical_device_configuration(
    tf.config.list_physical_devices("CPU")[0], [tf.config.LogicalDeviceConfiguration()] * 2
)
strategy = tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"])
BATCH = 16

with strategy.scope():
    model = tf.keras.Sequential([tf.keras.Input((5,)), tf.keras.layers.Dense(8, "tanh"), tf.keras.layers.Dense(1)])
    optimizer = tf.keras.optimizers.SGD(0.01)


def step_fn(inputs):
    x, y = inputs
    with tf.GradientTape() as tape:
        loss = tf.reduce_sum(tf.square(model(x, training=True) - y)) / BATCH
    gradients = tape.gradient(loss, model.trainable_variables)
    context = tf.distribute.get_replica_context()
    gradients = context.all_reduce(tf.distribute.ReduceOp.SUM, gradients)
    gradients, norm = tf.clip_by_global_norm(gradients, 0.1)
    optimizer.apply_gradients(zip(gradients, model.trainable_variables), skip_gradients_aggregation=True)
    return norm


@tf.function
def train_step(inputs):
    return strategy.reduce(tf.distribute.ReduceOp.MEAN, strategy.run(step_fn, args=(inputs,)), axis=None)


data = tf.data.Dataset.from_tensor_slices((tf.random.normal((64, 5)), tf.random.normal((64, 1)))).batch(BATCH)
for batch in strategy.experimental_distribute_dataset(data):
    print(float(train_step(batch)))
