"""The process that trains a run: how it is started, its signals and heartbeat, and its training thread.

What the thread does belongs in `training`.
"""
