"""Turns files into examples: what every kind of dataset shares.

Sources are in `sources`, image files in `images`, TFRecord shards in `tfrecord`, and counting without loading in
`survey`. Batches, caching and augmentation belong in `input`.
"""
