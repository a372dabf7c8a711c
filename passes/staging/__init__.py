"""Values brought to shared memory, fragments and registers."""
