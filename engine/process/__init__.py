"""The process that trains a run: how it is started, its signals and heartbeat, and the thread that does `training`."""
