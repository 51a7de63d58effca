"""Compaction: of each key only the newest record stays.

`candidates` says which log is worth it and how far it may be cleaned; `pass_plan` fixes on the event loop's thread what
one pass looks at, `cleaner` then reads and writes in a thread of its own, and the log takes over what it has made,
group by group, on the event loop's thread again. Offsets, order and what producers have written last never change.

Nothing here is imported before the first log is due: NumPy takes its time.
"""
