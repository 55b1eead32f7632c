"""What the layers of encoders know, by language and beside encoder-free baselines: what the stage `probe` measures."""
