"""What a run is asked to do: the configuration, its tables and types, how it is read and checked.

Facts about datasets and models that need no file and no framework belong here too. What a configuration will do on a
machine does not: see `planning`.
"""
