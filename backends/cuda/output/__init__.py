"""Statements and the translation unit, with what is assumed of alignment."""
