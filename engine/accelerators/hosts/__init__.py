"""Several machines that train one model together, through `jax.distributed`.

Which machines they are, whether they fit together, one stop for all, and the figures of every host. Connecting JAX's
devices belongs in `accelerators.jax`.
"""
