"""What a consumer decides: positions, fetches, and how records are handed out."""
