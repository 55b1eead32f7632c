"""Runs recipes in a process of its own: `python -m tests.training.recipe_runs '[[recipe, binding, ...], ...]'`.

XLA_FLAGS says how many devices JAX sees.
"""

import json
import sys

import conftest
from rembed_keras import config
from rembed_keras.config.backend import import_framework
from rembed_keras.errors import UserError


def main() -> int:
    import_framework()
    conftest.work_quickly()
    for recipe, *bindings in json.loads(sys.argv[1]):
        try:
            config.run(config.load(recipe, bindings))
        except UserError as error:
            print(f"rembed: {error}", file=sys.stderr)
            return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
