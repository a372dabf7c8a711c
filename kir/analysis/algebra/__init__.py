"""Equal over the reals: what two programs compute, element by element, as expressions over their inputs that are brought to one normal form.

Sizes are given and small; inputs are symbols, so an answer holds for all inputs at those sizes. Roundings are left out, approximate instructions stand for
the functions that they approximate, inputs are finite, and denominators are not zero. What is not decided is not decided.

Order: terms, normal, memory, scopes, tile_calls, execution, equality.
"""
