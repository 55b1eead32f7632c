"""From gin files to a checked recipe: parsed, and every name and value validated, before anything is imported."""
