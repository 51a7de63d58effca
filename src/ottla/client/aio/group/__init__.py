"""Membership in a group: the requests that carry out what `client.core.group` decides."""
