"""Calls of the functions of packages, each against an oracle: what shows that a kernel which KIR wrote computes what the original does."""
