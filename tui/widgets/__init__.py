"""The parts of the screens that show something: panes, tables, panels.

Parts that take input belong in `forms`; curves belong in `charts`.
"""
