"""A kind of task, and a data set of it."""
