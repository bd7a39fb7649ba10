"""Facts about this machine: accelerators, cores, memory, disks, packages, and what kind of machine it is.

They are read from files and variables without a framework. Judging them belongs in `doctor`; measuring devices during
training belongs in `monitoring`.
"""
