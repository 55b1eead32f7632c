"""Steps of training compiled for chips that are not here: what they need, and what bounds them."""
