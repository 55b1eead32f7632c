"""The stages of a run: what a recipe lists."""
