"""A kernel as a package of Hugging Face's `kernels` hub, with the record of why it may be believed inside.

Order: wrapper, package.
"""
