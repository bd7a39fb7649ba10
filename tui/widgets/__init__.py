"""The parts of the screens that show something: panes, tables, panels. Parts that take input are in `forms`."""
