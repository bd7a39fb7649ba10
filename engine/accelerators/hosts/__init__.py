"""Several machines that train one model together, through JAX's own coordination service.

Finding each other, one stop for all, figures of every host, and naming a lost host. Connecting JAX's devices belongs in
`accelerators.jax`; the private calls of JAX are in `compat.jax`.
"""
