"""What this machine is and has: accelerators, cores, memory, disks, packages, and where it runs.

Facts only, read from files and variables without a framework. Judging them belongs in `doctor`; what devices do while a
run trains belongs in `monitoring`.
"""
