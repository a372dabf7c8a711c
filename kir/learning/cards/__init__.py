"""The library of skills: cards as readable files, and the shelves on which they are looked up."""
