"""What the bytes of a record's value mean: one module for each format, named in `kinds`."""
