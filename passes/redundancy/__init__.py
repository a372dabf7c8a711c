"""What is computed once instead of twice: hoisted, kept, tabulated."""
