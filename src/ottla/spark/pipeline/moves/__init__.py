"""Flows are moved to other offsets, and their positions are turned into those of consumer groups and back."""
