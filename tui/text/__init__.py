"""Formats numbers (only in `numbers`), tables, plans, runs and verdicts as plain text. No module draws a widget."""
