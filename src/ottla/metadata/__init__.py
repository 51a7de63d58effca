"""Where the cluster's metadata lives: a small tree of versioned nodes, in ZooKeeper or embedded in one broker."""
