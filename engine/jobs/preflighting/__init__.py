"""The preflight as a job: compiling in worker processes, or a lower bound on memory without the TPU compiler."""
