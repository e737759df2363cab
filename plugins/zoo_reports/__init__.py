"""Reports on experiments: tables, pictures and one page, for sweeps and lottery tickets."""
