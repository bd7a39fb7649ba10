"""Several machines that train one model together, through JAX's own coordination service.

Finding each other, one stop for all, figures of every host, and naming a lost host. Connecting JAX's devices belongs in
`accelerators.jax`; every private call of JAX is in `jax_service`.
"""
