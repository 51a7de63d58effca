"""Groups and transactions on this broker: their machines, the logs behind them, and who waits for what."""
