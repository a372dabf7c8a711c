"""From bytes to a tree: preprocessing, and the grammar's nodes."""
