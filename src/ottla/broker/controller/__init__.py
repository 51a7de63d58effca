"""The controller of a cluster: an event queue around what `machines.cluster` decides."""
