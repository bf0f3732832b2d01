"""Prints as JSON one step of Keras's own clip and of gradclip's, on two replicas with the gradients [3, 1] and [0.5, 4].

And one step with the rule that the refusal of a skip shows, where the second replica has a NaN.
"""

import dataclasses
import json
import math
import os

os.environ.update(KERAS_BACKEND="tensorflow", TF_CPP_MIN_LOG_LEVEL="3", CUDA_VISIBLE_DEVICES="")

import keras
import tensorflow as tf

from gradclip.backends.keras import clipped
from gradclip.dialects import keras as dialect

cpu = tf.config.list_physical_devices("CPU")[0]
tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * 2)
strategy = tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"])


def stepped(optimizer, second=(0.5, 4.0)):
    """Return what a step subtracts from the variable."""
    with strategy.scope():
        variable = keras.Variable([0.0, 0.0])
        optimizer.build([variable])

    def replica():
        first = tf.distribute.get_replica_context().replica_id_in_sync_group == 0
        optimizer.apply([tf.where(first, [3.0, 1.0], list(second))], [variable])

    tf.function(lambda: strategy.run(replica))()
    return (0 - strategy.experimental_local_results(variable.value)[0].numpy()).tolist()


def new(**clip):
    with strategy.scope():
        return keras.optimizers.SGD(1.0, **clip)


NAMES = ("clipnorm", "global_clipnorm", "clipvalue")
theirs = {name: stepped(new(**{name: 1.0})) for name in NAMES}
ours = {name: stepped(clipped(new(), getattr(dialect, name)(1.0))) for name in NAMES}
rule = dataclasses.replace(dialect.global_clipnorm(1.0), skip_above=9.0, if_nonfinite="skip")
try:
    refused = stepped(clipped(new(), rule))
except ValueError as error:
    refused = str(error)
rule = dataclasses.replace(rule, skip_above=None, if_nonfinite="zero")
zeros = {"finite": stepped(clipped(new(), rule)), "NaN": stepped(clipped(new(), rule), (0.5, math.nan))}
print(json.dumps({"theirs": theirs, "ours": ours, "refused": refused, "zeros": zeros}))
