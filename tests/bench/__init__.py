"""Measures what the console costs, against plain Keras and against its targets: ``python -m tests.bench``."""
