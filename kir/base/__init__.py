"""What everything stands on: diagnostics, the registry of plugins, the store, the table of instructions."""
