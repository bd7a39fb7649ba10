"""Several machines that train one model together, on Keras's JAX backend.

Host 0 writes the run and the others join it. They talk only through JAX's own coordination service (`jax_service`):
first who is there, with which versions and configuration (`roll_call`), then signs of life, figures, failures and the
step after which all stop (`team`, `agreed_stop`). JAX aborts a process that loses host 0; a small process beside it
then writes the run's last event (`watcher`).
"""
