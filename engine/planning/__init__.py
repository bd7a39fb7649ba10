"""What a configuration will do on a machine: replicas, batches, steps, learning rate, time, advice."""
