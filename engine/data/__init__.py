"""Turns files into examples: what every kind of dataset shares.

The kinds of the user's files are in `kinds`, other sources in `sources`; image files in `images`, and counting
without loading in `survey`. Batches, caching and augmentation belong in `input`.
"""
