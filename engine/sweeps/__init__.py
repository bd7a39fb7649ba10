"""Many runs of one preset: a sweep over the values of some keys, or a search with Optuna."""
