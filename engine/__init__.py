"""Everything that a run needs and no screen: configuration, run folders, data, models, accelerators, training.

The modules at this level are what every folder may use. Anything that draws or prints belongs in `tui`.
docs/architecture.md draws the folders as floors: a folder imports only from the ones below it.
"""
