"""Changes training images at random, as `tf.data` operations on whole batches.

The options for these changes belong in `config.options`.
"""
