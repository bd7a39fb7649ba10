"""A run in a notebook's cell: its picture, its tables, keeping them up to date, and the IPython extension."""
