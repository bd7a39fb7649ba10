"""Lists, checks, labels and decodes image files."""
