"""Doctests of modules whose optional packages are missing are not collected: importing the modules would fail."""

from importlib.util import find_spec

installed = all(map(find_spec, ("starlette", "uvicorn", "python_multipart")))
collect_ignore = [] if installed else ["zoo_serving/application.py"]
