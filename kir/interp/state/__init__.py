"""What a run knows: memory, frames, tasks, clocks, findings. Data, and who may be asked."""
