"""A run in a notebook's cell: its picture, its tables, keeping them up to date, and the IPython extension.

Nothing depends on Textual's screens; IPython, matplotlib and ipywidgets are imported only when a cell asks for them.
"""
