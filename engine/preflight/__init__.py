"""The TPU compiler's verdict on a configuration, for a TPU that is not here.

Building, compiling, and reading what was compiled. Advice that needs no compiler belongs in `planning`.
"""
