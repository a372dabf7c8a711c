"""Asking and answering, turn by turn."""
