"""Where Spark looks for the format "ottla": a module of this name is found without any registration."""
