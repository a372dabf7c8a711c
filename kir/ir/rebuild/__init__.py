"""Whole programs made anew: copies, products, places of functions called."""
