"""Watching a run on another machine, of which nothing but its SSH server is needed.

``address.py`` reads ``ssh://…``, ``sftp.py`` speaks SFTP through the system's own ``ssh``, so that its configuration,
agent and jump hosts count, and ``watch.py`` keeps a copy of the run's folder up to date and takes requests back.

The other machine is not trusted: only regular files of known names are copied, and never more than the disk holds. A
mirror (`engine.mirror`) is different: it has what a run needs to be resumed, and is fetched once.
"""
