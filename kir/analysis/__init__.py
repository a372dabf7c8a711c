"""Analyses: what is known of integers, which memory a statement touches, what may be exchanged, what a program needs of a machine."""
