"""The plan: the least predicted time decides, measured numbers are read from the user's folder, and damage is one line."""

import json

import pytest
import torch

from zoo.errors import InputError
from zoo.kernels import axis_layout, plan
from zoo.kernels.plan import Machine, Work, choose, costs, real


@pytest.fixture(autouse=True)
def own_folder(tmp_path, monkeypatch):
    monkeypatch.setenv("ZOO_HOME", str(tmp_path))
    plan._measured.cache_clear()
    yield
    plan._measured.cache_clear()


def test_combining_the_components_and_their_gradients_of_a_wide_layer_takes_time():
    # 1,024 rows and features over the complex numbers: block 1.12 of the real layer's time, factored 1.26 (measured).
    given = Work(1024, axis_layout(1024, 2), axis_layout(1024, 2), 2, 3, training=True, threads=2)
    assert choose(given, Machine()) == "block"
    assert choose(given._replace(rows=8192), Machine()) == "factored"


def work(rows, size, n=4, rank=8, training=True, threads=2):
    return Work(rows, axis_layout(size, n), axis_layout(size, n), n, rank, training, threads)


@pytest.mark.parametrize(
    ("given", "kernel"),
    [
        (work(4096, 2048), "factored"),
        (work(4096, 2048, rank=None), "block"),
        (work(64, 64), "block"),
        (work(0, 64), "block"),
        (work(1, 4096, training=False), "thin"),
        (work(1, 64, training=False), "block"),
        (work(1, 1024, training=False), "thin"),  # measured beside the real layer: 0.7, and 1.1 by block
        (work(8, 1024, training=False), "thin"),  # 0.8, 1.1
        (work(32, 1024, training=False), "block"),  # 1.5, 1.1
        (work(4096, 2048, training=False), "factored"),
    ],
)
def test_the_least_predicted_time_decides(given, kernel):
    assert choose(given, Machine()) == kernel


def test_a_training_step_takes_three_products_and_more_rows_take_longer():
    assert real(work(4096, 512), Machine()) == pytest.approx(3 * real(work(4096, 512, training=False), Machine()))
    for training in (True, False):
        few, many = (costs(work(rows, 512, training=training), Machine()) for rows in (512, 8192))
        assert all(few[kernel] < many[kernel] for kernel in many)


def test_fewer_multiplications_and_a_faster_machine_take_less_time():
    slow, fast = (costs(work(4096, 512, rank=rank), Machine())["factored"] for rank in (16, 8))
    assert fast < slow
    assert costs(work(4096, 512), Machine(speed=3e11))["block"] < costs(work(4096, 512), Machine())["block"]


def test_one_thread_has_nobody_to_wait_for():
    small = costs(work(256, 256, threads=1), Machine(handover=1.0))["factored"]
    assert small < 1 < costs(work(256, 256), Machine(handover=1.0))["factored"]


def test_what_was_measured_is_read_by_the_name_of_the_machine(tmp_path):
    assert plan.this_machine() == Machine()
    plan._measured.cache_clear()
    path = tmp_path / "kernels.json"
    path.write_text(json.dumps({plan.name(): {"speed": 7e10}, "another": {"speed": 1e9}}))
    assert plan.path() == path
    assert plan.this_machine() == Machine(speed=7e10)


@pytest.mark.parametrize(
    "text", ["{", b"\xff\xfe\xff", "[]", '{"a": 1}', '{"a": {"speed": "fast"}}', '{"a": {"spede": 1}}', '{"a": {"speed": -1}}']
)
def test_a_damaged_file_is_named_with_the_way_out(tmp_path, text):
    (tmp_path / "kernels.json").write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises(InputError, match=r"kernels\.json .*zoo bench --calibrate"):
        plan.this_machine()


def test_a_folder_that_cannot_be_read_has_no_numbers(tmp_path, monkeypatch):
    (tmp_path / "file").touch()
    monkeypatch.setenv("ZOO_HOME", str(tmp_path / "file"))
    assert plan.this_machine() == Machine()


def test_no_home_is_one_line_for_who_needs_it_and_no_numbers_here(monkeypatch):
    monkeypatch.delenv("ZOO_HOME")
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)

    def unknown():
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.setattr("zoo.registry.home.Path.home", unknown)
    with pytest.raises(InputError, match="let ZOO_HOME name a folder"):
        plan.path()
    assert plan.this_machine() == Machine()


def test_numbers_are_of_the_threads_that_there_are(tmp_path):
    before = torch.get_num_threads()
    (tmp_path / "kernels.json").write_text(json.dumps({f"{plan.processor()}, 1 threads": {"speed": 7e10}}))
    try:
        torch.set_num_threads(2)
        assert plan.this_machine() == Machine()
        torch.set_num_threads(1)
        assert plan.this_machine() == Machine(speed=7e10)
    finally:
        torch.set_num_threads(before)
