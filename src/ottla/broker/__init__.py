"""A broker: handlers for every API, the replicas it holds, and the controller it may be."""
