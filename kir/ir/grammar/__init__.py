"""The text's grammar, and its parser's tables."""
