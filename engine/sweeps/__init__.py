"""Many runs of one preset: a sweep over the values of some keys, or a search with Optuna.

What a sweep is, its folder, and the process that starts its runs one after another. Each of them is a run like any
other. What its results mean is in `tui.following`.
"""
