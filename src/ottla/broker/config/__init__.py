"""The settings of a broker: declared (`keys`), read, described, documented, and changed while it runs."""
