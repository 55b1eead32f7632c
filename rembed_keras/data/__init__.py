"""Text becomes batches: tokenizer, corpus, mixture and masking, each a function of (seed, step)."""
