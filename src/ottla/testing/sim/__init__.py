"""A whole cluster in one thread under one seed: real brokers on a time, a network, disks and a store that are not."""
