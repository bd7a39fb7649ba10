"""The subcommands of `tpu-console`, one module per group; each imports what it needs when it runs."""
