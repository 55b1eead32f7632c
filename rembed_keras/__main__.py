"""`python -m rembed_keras` is `rembed`."""

from rembed_keras.cli import main

main()
