"""Another algorithm, through a hole that is filled and checked."""
