"""How far a program is from naive, and when it is."""
