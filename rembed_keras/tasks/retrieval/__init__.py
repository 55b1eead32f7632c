"""Bitext retrieval: sentences and their translations."""
