"""Exports a run as plain Keras or as a converted model, and imports the trainings of other tools."""
