import json

import pytest

from zoo.data import ImageFacts
from zoo.errors import InputError

FACTS = ImageFacts(
    in_channels=3,
    image_size=32,
    classes=("a", "b"),
    mean=(0.1, 0.2, 0.3),
    std=(0.4, 0.5, 0.6),
    sizes={"train": 3, "val": 1},
    sha256="00",
)


def test_survives_json():
    back = ImageFacts.from_dict(json.loads(json.dumps(FACTS.to_dict())))
    assert back == FACTS
    assert isinstance(back.classes, tuple)
    assert back.num_classes == 2
    assert back.task == "image_classification"


@pytest.mark.parametrize("change", [{"mean": None}, {"surprise": 1}])
def test_names_the_wrong_field(change):
    values = {**FACTS.to_dict(), **change}
    values = {key: value for key, value in values.items() if value is not None}
    with pytest.raises(InputError, match=next(iter(change))):
        ImageFacts.from_dict(values)
