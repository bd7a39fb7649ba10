"""Symbols used on the screens. `tui.terminal.ascii` replaces them if a font lacks them."""

BAR, BAR_LEFT = "━", "─"
"""The full and the empty part of a progress bar."""

BEST, NOW, DONE, FAILED, WARNING, STOPPED, DOWNLOAD = "★", "▸", "✓", "✗", "▲", "■", "↓"

SPINNER = "▖▘▝▗"
"""Frames of the spinner. Not braille, because some fonts lack it."""

LEVELS = "▁▂▃▄▅▆▇█"
"""Bars of a sparkline, lowest first."""
