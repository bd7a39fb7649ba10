"""Finds out the format, counts and classes of a dataset's files without loading them."""
