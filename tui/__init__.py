"""The terminal console: the command line, the screens, and plain lines without a terminal.

It never imports TensorFlow, Keras or JAX, and reads runs only through their folders.
"""
