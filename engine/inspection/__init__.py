"""What there is to know of a dataset, as plain values for `tpu-console inspect`; needs TensorFlow."""
