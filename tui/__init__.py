"""The terminal console: the command line, the screens, and plain lines where there is no screen.

It never imports TensorFlow, Keras or JAX, and reads runs only through their folders.
"""
