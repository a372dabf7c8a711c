"""What a thread holds: elements, layouts, the need of each statement."""
