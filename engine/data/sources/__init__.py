"""What is not a file of the user: the built-in datasets and the user's functions; `load` loads any dataset."""
