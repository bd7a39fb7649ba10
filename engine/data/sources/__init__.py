"""One module per kind of dataset, each with a function `load` that returns examples.

A new kind of dataset goes here, and into `config.catalog` or `config.data_options`.
"""
