"""The function, its body, and the file around them."""
