"""The console's screens: which widgets they are made of, and what their keys do.

A part of a screen belongs in `widgets` or `forms`; text that has no widget belongs in `text`.
"""
