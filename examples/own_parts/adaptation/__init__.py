"""A fine-tuning method and a loss term."""
