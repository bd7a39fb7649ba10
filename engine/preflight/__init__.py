"""What a run would do on a TPU that is not here, as the TPU's own compiler tells it."""
