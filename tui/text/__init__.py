"""What the program says, as plain text: numbers, tables, plans, runs, verdicts. No module here draws a widget.

Numbers, sizes and durations are written by `numbers` alone.
"""
