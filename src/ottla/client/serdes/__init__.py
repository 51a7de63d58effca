"""Keys and values to bytes and back."""
