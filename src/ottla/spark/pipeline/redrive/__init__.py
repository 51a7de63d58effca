"""Dead letters get a second chance: they are sent back as they were, each at most once, exactly once over crashes."""
