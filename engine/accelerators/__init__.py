"""Choosing a backend and connecting devices, with TensorFlow or JAX, on one host or several (`hosts`).

Finding out what the machine has without a framework belongs in `machine`.
"""
