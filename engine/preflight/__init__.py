"""The TPU compiler's verdict on a configuration, for a TPU that this machine does not have.

Building, compiling, and reading what was compiled. Advice that needs no compiler belongs in `planning`.
"""
