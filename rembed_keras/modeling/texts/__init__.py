"""Models that take texts: what stands between a list of strings and the encoder's inputs."""
