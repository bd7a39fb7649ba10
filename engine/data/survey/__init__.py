"""Finds out the format, counts and classes of a dataset's files without loading them.

Plain Python, fast enough for every key press. Loading examples belongs in `data.kinds`.
"""
