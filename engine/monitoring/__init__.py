"""What devices, the machine and the input pipeline do while a run trains, read once per second.

Events that describe training itself are written by `training.bridge`.
"""
