"""How models are saved and made again: configurations, what was done to a model since it was made, weights of files."""
