"""What the admin client asks and how it reads the answers, a module for each family of calls."""
