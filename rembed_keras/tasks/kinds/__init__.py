"""Kinds of tasks: how examples become inputs, and outputs become predictions."""
