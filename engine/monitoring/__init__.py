"""What devices, the machine and the input pipeline do while a run trains; `training.bridge` says what training does."""
