"""Many records in the works at once, for threads."""
