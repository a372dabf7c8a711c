"""What a launch says: geometry, bounds, the skeleton of a binding."""
