"""Pre-training objectives: what is lost, what is dropped, and how a batch becomes a step."""
