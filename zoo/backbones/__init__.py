"""Networks over any algebra: they get their layers from a `zoo.nn.Layers` factory, the first argument.

Their keyword arguments are options of the spec, and facts about the data: ``in_channels`` and ``image_size`` in pixels,
``in_features`` and ``out_features``, ``num_classes``, ``vocab_size`` (0 is padding), and ``max_length`` in tokens.
"""

from zoo.backbones.build import Recipe, recipe, recipe_of

__all__ = ["Recipe", "recipe", "recipe_of"]
