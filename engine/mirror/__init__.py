"""A run's mirror: a copy of its folder in a bucket or another folder, from which a new machine can resume it.

``copier.py`` decides what is copied, in which order, and brings a run back; ``background.py`` copies while it trains,
and ``places.py`` writes folders and buckets.

A mirror is not trusted: only files of known names are fetched, never more bytes than announced, and checkpoints only
with a correct digest.
"""
