"""From tiles to the code of threads, statement by statement, and back."""
