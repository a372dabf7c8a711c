"""Operators, subscripts, calls and displays."""
