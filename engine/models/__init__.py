"""Building and compiling Keras models: one module per kind of model.

A new model goes here, and its options into `config.model_options`. Training belongs in `training`.
"""
