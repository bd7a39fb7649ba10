"""The jobs of `engine.job`, and what they alone need."""
