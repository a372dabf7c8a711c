"""What one CTA does: tiles, and shares of the work."""
