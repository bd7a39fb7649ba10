"""Several machines that train one model together, on Keras's JAX backend.

Host 0 writes the run; the others join it. Before JAX starts they meet at the coordinator's address: `roll_call` looks
whether all came, with the same versions and configuration, so that what is wrong is said in a sentence and not by a
program that hangs. That connection stays: over it the others tell what they do (`team`), a host that is gone is
noticed, and all agree on the step after which to stop (`agreed_stop`), because none can go on alone.
"""
