"""Turns examples into batches: the `tf.data` pipeline, its cache, class weights and augmentation."""
