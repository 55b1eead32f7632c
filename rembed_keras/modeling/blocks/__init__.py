"""Transformer blocks: one file a kind, and the stack that shares weights between them."""
