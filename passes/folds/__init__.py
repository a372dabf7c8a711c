"""Rows folded by a function of two elements, and single values of rows that the threads hold."""
