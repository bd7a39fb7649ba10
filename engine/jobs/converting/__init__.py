"""Converting an image dataset into TFRecord shards, in steps that an interrupted job can resume."""
