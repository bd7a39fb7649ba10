"""One run's folder and life: its files, journal, events, state, heartbeat, and how it is followed and stopped.

Plain values only; nothing here knows a framework or a screen. How a run is trained belongs in `training`.
"""
