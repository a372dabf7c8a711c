"""What nests of loops do: their steps, their cycles, what they reduce."""
