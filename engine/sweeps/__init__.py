"""Many runs of one preset: a sweep over the values of some keys, or a search with Optuna.

Holds a sweep's definition, its folder, and the process that starts its runs one after another; each is a run like any
other. `tui.following` compares the results.
"""
