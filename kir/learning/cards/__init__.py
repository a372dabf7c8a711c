"""The library of skills: cards as readable files, the shelves that hold them, looking one up, and putting it to use.

Order: card, facts, use, mend, search, library, export.
"""
