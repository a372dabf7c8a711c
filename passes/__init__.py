"""The shipped passes, one file per intent; the registry lists the modules of this package."""
