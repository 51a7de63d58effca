"""The embedded store for several processes of one machine: a local cluster needs no ZooKeeper and no Java.

Whoever starts the brokers has the file open and serves it on a Unix socket (`server`); each broker is a `client` with a
session of its own. A session ends with its connection, and when nothing is heard of the client for its time-out.
"""
