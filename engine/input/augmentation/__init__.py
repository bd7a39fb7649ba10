"""Random changes to training images, as `tf.data` operations on whole batches.

Which of them a configuration asks for belongs in `config.options`.
"""
