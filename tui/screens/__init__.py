"""The console's screens: their widgets and keys.

Parts of a screen belong in `widgets` or `forms`; text without a widget belongs in `text`.
"""
