"""The subcommands of `tpu-console`, one module per group; each imports what it needs when it runs.

What a command prints about a run is in `text`; following a run is in `following`.
"""
