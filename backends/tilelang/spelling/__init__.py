"""How names, layouts, dtypes and expressions are spelled in TileLang."""
