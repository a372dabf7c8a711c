"""What a surface alone can say: autotuning, templates, options."""
