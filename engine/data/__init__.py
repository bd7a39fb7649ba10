"""Turns files, built-in data and what the user's functions return into examples.

Each kind of dataset is in `kinds`, which also count examples without loading them; image files are in `images`.
Batches, caching and augmentation belong in `input`.
"""
