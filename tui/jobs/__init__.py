"""Starts jobs and training processes, and shows their progress."""
