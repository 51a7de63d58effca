"""Copies of topics in another cluster: what is copied, under which names, and where groups go on reading there."""
