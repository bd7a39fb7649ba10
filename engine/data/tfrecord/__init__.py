"""The format of image shards: their names, their schema, and which image goes into which shard.

Converting a dataset into shards is a job: see `jobs.converting`.
"""
