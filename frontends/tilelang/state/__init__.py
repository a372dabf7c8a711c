"""What is known while a kernel is read, and whom to ask about a part of it."""
