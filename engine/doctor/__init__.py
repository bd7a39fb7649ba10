"""Whether this machine is ready to train: checks, pure functions from the facts of `machine` to results."""
