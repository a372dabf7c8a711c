"""Questions to z3: terms of the IR in its words, products taken apart, and how many steps an answer may take.

Order: terms, flat, question.
"""
