"""A run in a notebook's cell: its picture, its tables, keeping them up to date, and the IPython extension.

`tpu_console.watch` is the entrance. Nothing here depends on Textual's screens, and IPython, matplotlib and ipywidgets
are imported only when a cell asks for them.
"""
