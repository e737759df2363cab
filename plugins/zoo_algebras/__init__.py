"""The built-in algebras, which are registered by entry points like those of third-party plugins."""
