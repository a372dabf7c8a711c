"""What was read, made plain: names that are used once where they are used, and loops that count.

Order: tidy.
"""
