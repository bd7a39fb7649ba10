"""The characters that stand for things on a screen. `tui.terminal.ascii` replaces them where a font lacks them."""

BAR, BAR_LEFT = "━", "─"
"""The done part of a bar, and what is left of it."""

BEST, NOW, DONE, FAILED, WARNING, STOPPED = "★", "▸", "✓", "✗", "▲", "■"

SPINNER = "▖▘▝▗"
"""Frames of something that moves. Not braille: some fonts lack it."""

LEVELS = "▁▂▃▄▅▆▇█"
"""Bars of a sparkline, the lowest first."""
