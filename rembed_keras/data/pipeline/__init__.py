"""Shards become batches, as a function of (seed, step)."""
