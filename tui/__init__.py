"""The terminal console: command line, screens and plain lines. It never loads a training framework."""
