"""What is known of a dataset's files before anything is loaded: formats, counts, classes.

Plain Python, quick enough to run at every key press. Loading examples belongs in `data.sources`.
"""
