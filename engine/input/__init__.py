"""Turns examples into batches: the `tf.data` pipeline, its cache and augmentation."""
