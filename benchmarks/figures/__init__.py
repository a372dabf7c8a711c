"""The figures, a module for each group; each has a generator ``figures``."""
