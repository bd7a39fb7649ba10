"""Every private call of Keras, TensorFlow and JAX, each behind a small public function.

A docstring names the private name, the versions it was checked on, why it is needed and what happens without it. The
tests in `tests/engine/compat` fail when upstream changes a private name or no longer needs it. Import these modules
only where their framework may be loaded. Calls of public functions belong to their subject's folder.
"""
