"""A run's mirror: a copy of its folder in a bucket or another folder, from which a new machine can resume it.

A mirror is not trusted: only files of known names are fetched, never more bytes than announced, and checkpoints only
with a correct digest.
"""
