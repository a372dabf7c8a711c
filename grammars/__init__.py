"""Data: every grammar, query and table."""
