"""The kinds of datasets, which `table` lists; `formats` finds out which one reads the user's files.

No module here imports a framework, pandas or NumPy at its top: the form and the plan read them.
"""
