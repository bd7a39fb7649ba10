"""Runs, presets and a checkpoint as an earlier version wrote them, and what is shown of them.

``python -m tests.record texts`` writes what is shown of them again; read the diff before you commit it.
"""
