"""Record batches: their header, their records, their compression. Pure functions over bytes; no files, no sockets."""
