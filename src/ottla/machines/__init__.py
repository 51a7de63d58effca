"""Pure state machines: decisions without IO, clocks or randomness of their own."""
