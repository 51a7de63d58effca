"""Where the fields of many records lie, as NumPy arrays: what the columns of clients and the broker's cleaner share.

It needs NumPy and nothing of Arrow; whoever has no use for arrays never imports it.
"""
