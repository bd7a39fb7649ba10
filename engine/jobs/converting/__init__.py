"""Converting an image dataset into TFRecord shards; an interrupted job can be resumed."""
