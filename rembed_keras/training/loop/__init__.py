"""The training loop: steps, callbacks, checkpoints, divergence, the run's folder."""
