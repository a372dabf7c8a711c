"""Loops unrolled, split, tiled, jammed, and left early."""
