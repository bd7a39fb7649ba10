"""The parts of the screens that take input: the run form, its fields and their drafts."""
