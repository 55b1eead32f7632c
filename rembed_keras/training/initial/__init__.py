"""Where training starts: weights of other runs, tasks and folders, and the structural changes that a recipe names."""
