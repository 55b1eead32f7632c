"""What models and objectives add losses with: terms beside their own, and weights, by step and of rows."""
