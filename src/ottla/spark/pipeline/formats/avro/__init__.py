"""Avro by the column: schemas, values into Arrow arrays, and Arrow arrays into values."""
