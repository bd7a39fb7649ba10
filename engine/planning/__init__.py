"""What a configuration will do on a machine: replicas, batches, steps, learning rate, time, advice.

Arithmetic on facts, without a framework. What the TPU compiler says belongs in `preflight`.
"""
