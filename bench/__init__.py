"""How fast the broker is, as ratios measured in one run: against the physical limit and against a peer.

- The limits: a sink that only receives the same bytes and writes them to a file, and a source that only sends the same
  file. No broker can be faster at the same system calls.
- The peer: librdkafka's mock cluster, a broker in C that checks nothing and keeps nothing on disk.
- The load: prebuilt frames and no work per message, in C where a compiler is found (see native/load.c). Each request
  is one send, as it is for real clients. What share of a core the generator itself took is kept with the results.

Absolute figures depend on the machine and on what else it does, so rounds of all sides are interleaved, medians are
taken, and only the ratios have targets. `python -m bench` runs everything, `--quick` in under a minute.
"""
