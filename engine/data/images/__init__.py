"""Lists, checks, labels and decodes image files.

Reading their names and labels belongs in `data.kinds`.
"""
