"""The console's screens: their widgets and keys."""
