"""Work that needs TensorFlow and is not a run, each in its own process: `job` is that process.

A new job gets a module here and a name in `job.JOBS`.
"""
