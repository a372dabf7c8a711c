"""Sums, products and widths of whole numbers."""
