import json

import pytest

from zoo.data import ImageInfo
from zoo.errors import InputError

INFO = ImageInfo(
    in_channels=3,
    image_size=32,
    classes=("a", "b"),
    mean=(0.1, 0.2, 0.3),
    std=(0.4, 0.5, 0.6),
    sizes={"train": 3, "val": 1},
    sha256="00",
)


def test_survives_json():
    back = ImageInfo.from_dict(json.loads(json.dumps(INFO.to_dict())))
    assert back == INFO
    assert isinstance(back.classes, tuple)
    assert back.num_classes == 2
    assert back.task == "image_classification"


@pytest.mark.parametrize("change", [{"mean": None}, {"surprise": 1}])
def test_names_the_wrong_field(change):
    values = {**INFO.to_dict(), **change}
    values = {key: value for key, value in values.items() if value is not None}
    with pytest.raises(InputError, match=next(iter(change))):
        ImageInfo.from_dict(values)
