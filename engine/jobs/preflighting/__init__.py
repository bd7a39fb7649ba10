"""The preflight as a job: compiling in worker processes, or the estimate where there is no TPU compiler."""
