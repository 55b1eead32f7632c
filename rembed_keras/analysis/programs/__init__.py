"""Programs that a compiler made of a step: what they compute, move and exchange, and what bounds them on a chip."""
