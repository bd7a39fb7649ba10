"""The jobs of `engine.jobs.job`, and what they alone need."""
