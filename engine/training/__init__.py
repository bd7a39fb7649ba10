"""The run itself: connect, load, build, compile, fit, save, and the Keras callbacks that report it.

The process and the thread in which this happens belong in `process`.
"""
