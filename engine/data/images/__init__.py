"""Image files: listing, checking, labelling and decoding them.

Where their names and labels come from belongs in `data.sources`.
"""
