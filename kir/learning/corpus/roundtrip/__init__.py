"""Every kernel of a package read, written, read again and compared; counted.

Order: find, unsupported_features, equal, same, specialized, one, _worker, run, count, table.
"""
