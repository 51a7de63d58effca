"""A real ZooKeeper on this machine, out of the jars that come with PySpark."""
