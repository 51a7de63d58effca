"""What a parallel consumer decides: which record may be handled when, and what becomes of those that fail."""
