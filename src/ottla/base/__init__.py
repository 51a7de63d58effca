"""What every layer shares: identifiers, errors, clocks and options. Imports nothing of ours."""
