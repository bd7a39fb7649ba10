"""Formats numbers, tables, plans, runs and verdicts as plain text. No module here draws a widget.

Only `numbers` formats numbers, sizes and durations.
"""
