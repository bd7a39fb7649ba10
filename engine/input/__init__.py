"""From examples to batches: the `tf.data` pipeline, its cache, class weights and augmentation.

Where examples come from belongs in `data`; how fast the pipeline is while a run trains belongs in `monitoring`.
"""
