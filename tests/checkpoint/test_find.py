"""What is given in place of a run is told from what is meant."""

import pytest

from zoo.checkpoint.folder import find
from zoo.errors import InputError


def test_a_file_and_a_folder_of_runs(tmp_path):
    model = tmp_path / "runs" / "one" / "model"
    model.mkdir(parents=True)
    (model / "config.json").write_text("{}")
    ticket = tmp_path / "tickets" / "real" / "seed-0" / "round-01" / "model"
    ticket.mkdir(parents=True)
    (ticket / "config.json").write_text("{}")
    with pytest.raises(InputError, match=r"is a folder of runs: use one of them, such as .*real/seed-0/round-01$"):
        find(tmp_path / "tickets")
    assert find(tmp_path / "runs" / "one") == model
    assert find(model) == model
    with pytest.raises(InputError, match="is a file: use its run folder"):
        find(model / "config.json")
    with pytest.raises(InputError, match=r"is a folder of runs: use one of them, such as .*one"):
        find(tmp_path / "runs")
    (tmp_path / "runs" / "two").mkdir()
    with pytest.raises(InputError, match="the run has not finished"):
        find(tmp_path / "runs" / "two")
