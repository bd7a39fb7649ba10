"""Runs, presets and a checkpoint as an earlier version wrote them, and what is shown of them.

``python -m tests.record texts`` writes anew what is shown of them; look at the difference before you commit it.
"""
