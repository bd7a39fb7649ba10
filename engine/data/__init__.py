"""From files to examples: what every kind of dataset shares.

Sources are in `sources`, image files in `images`, shards in `tfrecord`, and what can be counted without loading
anything in `survey`. Batches, caching and augmentation belong in `input`.
"""
