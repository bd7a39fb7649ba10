"""Turns examples into batches: the `tf.data` pipeline, its cache, class weights and augmentation.

Loading examples belongs in `data`; measuring the pipeline during training belongs in `monitoring`.
"""
