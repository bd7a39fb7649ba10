"""Predicting new data with a trained run: one module per kind of input, and the table that is written."""
