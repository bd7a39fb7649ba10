"""The kinds of datasets, one class in one module each; `table` lists them.

No module here imports a framework, pandas or NumPy at its top: the form and the plan read them.
"""
