"""Reads runs: follows one for a screen or as plain lines, lists and compares them, and sums up a sweep."""
