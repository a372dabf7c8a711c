"""Registers named in text, and policies of caches."""
