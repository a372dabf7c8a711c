"""Commands about KIR itself: doctor, explain, plugins."""
