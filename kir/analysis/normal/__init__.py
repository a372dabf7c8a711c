"""The normal form: one spelling for what can be written in several ways.

Order: bit_indices, merged_copies, vectors, spelling, pools, recombine, normal_form, rows, flat_index, narrow, private, unsigned, wraparound_index, regions.
"""
