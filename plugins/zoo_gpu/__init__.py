"""Kernels for GPUs, behind the entry group ``zoo.kernels``; none of them has run on a GPU yet."""
