"""The library of skills: cards as readable files, the stores that hold them, looking one up, and putting it to use.

Order: card, facts, traits, use, missing, unbounded, mend, search, brought, library, export.
"""
