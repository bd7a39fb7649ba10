"""The terminal itself: standard output, themes, ASCII drawing, and keeping native output off the screen."""
