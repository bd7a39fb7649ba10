"""The subcommands of `tpu-console`, a module for each group; each imports what it needs when it runs."""
