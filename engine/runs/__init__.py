"""One run's folder and life: its files, journal, events, state, heartbeat, and how it is followed and stopped."""
