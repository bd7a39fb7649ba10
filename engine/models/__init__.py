"""Builds and compiles Keras models: one module per kind of model.

The options of models belong in `config.model_options`, training belongs in `training`.
"""
