"""Everything that a run needs and no screen: configuration, run folders, data, models, accelerators, training.

The modules at this level are what every folder may use. docs/architecture.md says which folder imports from which.
"""
