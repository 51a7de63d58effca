"""The flows of a pipeline while they run: what Spark reports of them, what they read, how far they are."""
