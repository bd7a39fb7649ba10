"""Whether this machine is ready to train: checks, pure functions from the facts of `machine` to results.

Checks of a configuration do not belong here: see `config.checks` and `planning`.
"""
