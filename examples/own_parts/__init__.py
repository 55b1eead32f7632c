"""A package outside rembed_keras with one part for each extension point; `recipe.gin` uses them all."""
