"""What does not fit together in a recipe, found before anything is run.

Each is refused with the words of the part that would refuse it at its turn, which may be days later.
"""
