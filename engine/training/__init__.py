"""The run itself: connect, load, build, compile, fit, save, and the Keras callbacks that report it."""
