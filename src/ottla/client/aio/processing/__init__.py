"""Records handled side by side, with retries and dead letters."""
