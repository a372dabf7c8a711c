"""Every kernel of a package read, written, read again and compared; counted.

Order: find, unsupported_features, same_values, settled_terms, equal, same, specialized, one, _worker, run, count, table.
"""
