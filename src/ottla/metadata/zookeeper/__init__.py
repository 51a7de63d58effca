"""The metadata store on a ZooKeeper ensemble, by kazoo: needs the extra `ottla[zookeeper]`.

Kazoo works in a thread of its own. Nothing of it touches what belongs to the event loop: all it has to say comes
through one queue, in the order in which ZooKeeper said it.
"""
