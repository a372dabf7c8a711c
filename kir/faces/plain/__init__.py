"""A naive program as a person would write it: the same values, in fewer and better words.

Order: values, loops, grid, naming, sums, form.
"""
