"""Sources other than the user's files: the built-in datasets, and what the user's functions return."""
