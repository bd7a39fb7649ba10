"""Following a run: the thread that reads its folder for a screen, the plain lines, the overview for lists."""
