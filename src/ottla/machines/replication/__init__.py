"""Who leads a partition, who follows it, and what of its log is committed."""
