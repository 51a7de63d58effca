"""Groups of the classic protocol: a member assigns."""
