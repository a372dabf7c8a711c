"""What a target allows, and how much of it a program takes."""
