"""Everything that a run needs and no screen: configuration, run folders, data, models, accelerators, training.

The modules at this level are what every folder may use. What draws or prints belongs in `tui`. Folders whose modules
import TensorFlow, Keras or JAX when they are imported are never imported by `tui`.
"""
