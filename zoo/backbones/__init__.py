"""Networks that ask a `zoo.layers.Layers` factory for their matrices and never learn which algebra it is bound to."""

from zoo.backbones.recipe import Recipe, recipe, recipe_of

__all__ = ["Recipe", "recipe", "recipe_of"]
