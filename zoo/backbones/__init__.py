"""Networks over any algebra: they get their layers from a `zoo.layers.Layers` factory."""

from zoo.backbones.recipe import Recipe, recipe, recipe_of

__all__ = ["Recipe", "recipe", "recipe_of"]
