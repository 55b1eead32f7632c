"""A package outside rembed_keras with parts of its own, one a kind; `recipe.gin` uses them all."""
