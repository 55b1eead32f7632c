"""The stages of a run: each reads the workdir, does one thing, and writes the workdir."""
