"""Axes, fragments and retiling of tiles."""
