"""How Python is read: files and imports of a project, names, signatures and operators, never executed. For surfaces that are written in it."""
