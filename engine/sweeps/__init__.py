"""Many runs of one preset: a sweep over the values of some keys, or a search with Optuna.

A process starts them one after another; each is a run like any other. `tui.following` compares the results.
"""
