"""Runs recipes in a process of its own: `python -m tests.training.recipe_runs '[[recipe, binding, ...], ...]'`.

CPU_DEVICES says how many devices TensorFlow sees; XLA_FLAGS says it to JAX.
"""

import json
import os
import sys

import conftest
from rembed_keras import config
from rembed_keras.config.backend import import_framework
from rembed_keras.errors import UserError


def main() -> int:
    import_framework()
    import keras

    if keras.config.backend() == "tensorflow":
        import tensorflow as tf

        (cpu,) = tf.config.list_physical_devices("CPU")
        parts = [tf.config.LogicalDeviceConfiguration()] * int(os.environ.get("CPU_DEVICES", "1"))
        tf.config.set_logical_device_configuration(cpu, parts)
        conftest.make_graphs_quickly()
    else:
        conftest.lower_quickly()
    for recipe, *bindings in json.loads(sys.argv[1]):
        try:
            config.run(config.load(recipe, bindings))
        except UserError as error:
            print(f"rembed: {error}", file=sys.stderr)
            return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
