"""C++ types and conversions of numbers."""
