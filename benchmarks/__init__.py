"""Scripts that measure, and the results they wrote."""
