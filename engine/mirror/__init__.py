"""A run's mirror: a copy of its folder in a bucket or another folder, from which a new machine can resume it.

``copier.py`` decides what is copied and in which order, ``background.py`` does so while a run trains, ``fetch.py``
brings a run back, and ``places.py`` writes folders and buckets.

A mirror is not trusted: only files of known names are fetched, never more bytes than announced, and checkpoints only
with a correct digest.
"""
