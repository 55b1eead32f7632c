"""Parts of a training and of a run."""
