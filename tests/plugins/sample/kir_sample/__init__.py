"""A sample plugin: every public module of this package is one pass."""
