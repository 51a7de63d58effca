"""The client library: finding the cluster, routing requests to it, administration. Never imports the broker."""
