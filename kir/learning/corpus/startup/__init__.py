"""A folder that goes to the front of PYTHONPATH of a command: Python runs its `sitecustomize` before anything else."""
