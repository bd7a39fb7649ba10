"""The TPU compiler's verdict on a configuration, for a TPU that this machine does not have."""
