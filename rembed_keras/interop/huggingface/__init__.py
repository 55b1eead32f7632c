"""Folders of Hugging Face models: names of weights, reading, writing, tokenizers."""
