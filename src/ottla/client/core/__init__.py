"""What clients decide, without input or output: time is an argument, and no thread, socket or event loop is known."""
