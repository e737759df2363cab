"""Importers of networks and layers that other libraries have trained, behind the entry group ``zoo.importers``."""
