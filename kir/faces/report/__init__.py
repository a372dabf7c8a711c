"""Reports: a lineage as one HTML file that opens anywhere, without a network."""
