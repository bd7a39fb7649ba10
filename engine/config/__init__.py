"""The configuration of a run: its tables and types, facts about built-in datasets, how it is read and checked."""
