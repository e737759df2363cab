"""Look through a built network: which matrices can be hypercomplex, and why the others cannot."""

from zoo.survey.obstacles import Target
from zoo.survey.targets import Skip, survey

__all__ = ["Skip", "Target", "survey"]
