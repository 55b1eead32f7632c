"""Vocabularies of tokenizers: what of one a text needs, and what can be added, by kind of model."""
