"""Compares the preflight with direct compiles, on many models."""
