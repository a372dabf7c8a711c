"""What a name means where it stands: types, overloads, instances, changes."""
