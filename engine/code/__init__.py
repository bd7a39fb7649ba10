"""Writing Python: what an exported script is made of."""
