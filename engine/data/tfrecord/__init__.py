"""Defines the format of image shards: their names, their schema, and which image goes into which shard.

Converting a dataset into shards belongs in `jobs.converting`.
"""
