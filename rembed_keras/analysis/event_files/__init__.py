"""Files that TensorBoard reads: curves, texts, layouts of charts, and trials with their settings."""
