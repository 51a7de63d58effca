"""Sockets: the server that brokers listen with, and the connection that clients and brokers call with.

Knows frames and the order of replies; knows nothing of topics, logs or brokers.
"""
