"""What the cluster looks like, and where replicas should go."""
