"""A trained encoder with its parameters spent anew: a narrower input table, another depth, a smaller vocabulary."""
