"""Several elements at once: loads, stores and arithmetic."""
