"""Inspecting a dataset: counts, classes, sizes, damaged files, samples, and the speed of its pipeline."""
