"""A run's mirror: a second copy of its folder, in a bucket or another folder, from which a new machine can go on.

``copier.py`` decides what is copied and in which order, ``background.py`` does so while a run trains, ``fetch.py``
brings a run back, and ``places.py`` knows how to write a folder and a bucket. ``check.py`` needs no TensorFlow, which
alone can reach a bucket.

What comes from a mirror may be from anybody: only files of known names are fetched, never more than they say, and
checkpoints only with a correct digest.
"""
