"""Passes in a row: their text, their run, their trace."""
