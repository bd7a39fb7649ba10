"""The jobs of `engine.job`, one a module."""
