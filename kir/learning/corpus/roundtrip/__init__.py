"""Every kernel of a package read, written, read again and compared; counted."""
