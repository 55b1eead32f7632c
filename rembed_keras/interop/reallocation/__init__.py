"""A trained encoder with its parameters reallocated: a narrower input table, another depth, a smaller vocabulary."""
