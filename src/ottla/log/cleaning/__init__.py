"""Compaction: of each key only the newest record stays.

`candidates` says which log is worth it and how far it may be cleaned. `pass_plan` fixes, on the event loop's thread,
what one pass looks at. `cleaner` reads and writes, in a thread or in a process of its own (`process`, `worker`). The
log takes over what it has made, group by group, on the event loop's thread again. Offsets, order and what producers
have written last never change.

`cleaner` and what it builds on need NumPy, and are not imported before a pass begins.
"""
