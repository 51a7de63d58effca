"""Hand-written codecs for the APIs whose cost decides the broker's speed; equal to the compiled ones to the byte."""
