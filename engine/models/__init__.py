"""Builds and compiles Keras models; `table` lists the built-in ones. Training belongs in `training`."""
