"""Bitext retrieval and bitext mining."""
