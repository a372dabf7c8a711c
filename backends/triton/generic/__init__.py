"""Programs that hold sizes and dtypes open, as Triton functions."""
