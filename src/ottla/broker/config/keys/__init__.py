"""Every setting of a broker, by theme: name, type, default, rule and what it means. No behaviour lives here."""
