"""Studies: trained networks compared."""
