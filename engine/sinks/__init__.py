"""Passes a run's journal on to experiment trackers, in a process of its own so that training never waits for one."""
