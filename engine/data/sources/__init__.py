"""What is not a file of the user: the built-in datasets, and what the user's functions return."""
