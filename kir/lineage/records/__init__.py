"""What a lineage stores, hash-chained, and where."""
