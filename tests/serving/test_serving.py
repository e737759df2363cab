"""The web page of a model: its JSON interface, invalid requests, and the page in a browser."""

import contextlib
import io
import queue
import socket
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from urllib.request import urlopen

import pytest
import torch
from PIL import Image

pytest.importorskip("starlette", reason="needs hypercomplex-zoo[serve]")
httpx2 = pytest.importorskip("httpx2", reason="needs httpx2, which Starlette's test client uses")
pytest.importorskip("python_multipart", reason="needs hypercomplex-zoo[serve]")
uvicorn = pytest.importorskip("uvicorn", reason="needs hypercomplex-zoo[serve]")
from starlette.requests import Request  # noqa: E402
from starlette.responses import Response  # noqa: E402
from starlette.routing import Route  # noqa: E402
from starlette.testclient import TestClient  # noqa: E402
from zoo_serving import application as serving  # noqa: E402
from zoo_serving.command import host_names, listen  # noqa: E402

import zoo  # noqa: E402
from tests.errors import raises  # noqa: E402
from tests.faults.hostile import config, seal, write_sound  # noqa: E402
from tests.serving.browser import BROWSER, PROBE, browsing  # noqa: E402
from zoo import registry  # noqa: E402
from zoo.checkpoint import ModelConfig  # noqa: E402
from zoo.cli import main  # noqa: E402
from zoo.data import ready  # noqa: E402
from zoo.inference.model import Model  # noqa: E402
from zoo.tasks import task_type  # noqa: E402


def client(model, name="a model"):
    return TestClient(serving.application(model, name), raise_server_exceptions=False)


def png(image):
    out = io.BytesIO()
    image.save(out, "PNG")
    return out.getvalue()


def picture(number=0):
    from sklearn.datasets import load_digits

    return png(Image.fromarray((load_digits().images[number] * 15.9).astype("uint8")))


@pytest.fixture(scope="module")
def digits():
    return zoo.load("vit-digits-quaternion")


@pytest.fixture(scope="module")
def writer():
    return zoo.load("gpt-glosses-quaternion")


def untrained(data, backbone):
    """Return an untrained model of a data set."""
    module = ready(registry.create("zoo.datasets", data))
    torch.manual_seed(0)
    net = zoo.backbone(backbone, "complex", **module.info.model_kwargs).eval()
    task = task_type(module.task)[0].from_info(net, module.info, getattr(module, "tokenizer", None))
    return Model(net, ModelConfig(backbone=backbone, algebra="complex", task=module.task, data=data), task)


def test_images_get_the_labels_of_predict(digits, tmp_path):
    files = [("file", (f"{i}.png", picture(i))) for i in range(3)]
    for i in range(3):
        (tmp_path / f"{i}.png").write_bytes(picture(i))
    reply = client(digits).post("/predict", files=files)
    assert reply.status_code == 200
    rows = reply.json()["predictions"]
    expected = digits.predict([str(tmp_path / f"{i}.png") for i in range(3)])
    assert [(row["label"], row["probability"]) for row in rows] == [(row["label"], row["probability"]) for row in expected]
    for row in rows:
        assert sorted(row["probabilities"]) == list(digits.info.classes)
        assert sum(row["probabilities"].values()) == pytest.approx(1, abs=1e-4)
        assert row["probabilities"][row["label"]] == row["probability"]


def error_of(reply, status=400):
    assert reply.status_code == status, reply.text
    assert list(reply.json()) == ["error"]
    assert len(reply.json()["error"].splitlines()) == 1
    return reply.json()["error"]


def test_invalid_images(digits, monkeypatch):
    page = client(digits)
    assert "x.png cannot be read" in error_of(page.post("/predict", files={"file": ("x.png", b"nothing")}))
    assert "x.png cannot be read" in error_of(page.post("/predict", files={"file": ("x.png", picture()[:90])}))
    assert "this model reads images: curl -F" in error_of(page.post("/predict", json={"inputs": ["/etc/hostname"]}))
    several = [("file", ("x.png", png(Image.new("1", (5000, 6000)))))] * 2
    assert "in all images" in error_of(page.post("/predict", files=several))
    big = {"file": ("x.png", b"0" * (serving.MAX_BYTES + 1))}
    assert error_of(page.post("/predict", files=big), 413) == "more than 10 MB: send a smaller file"
    many = [("file", ("x.png", picture()))] * (serving.MAX_INPUTS + 1)
    assert "Too many files" in error_of(page.post("/predict", files=many))
    assert "does not generate text" in error_of(page.post("/generate", json={"prompt": "a"}))
    monkeypatch.setattr(digits.task, "predict_step", lambda *_: 1 / 0)
    assert "ZeroDivisionError" in error_of(page.post("/predict", files={"file": ("x.png", picture())}), 500)


def test_generate_and_stream(writer):
    page, options = client(writer), {"length": 12, "seed": 3}
    (expected,) = writer.generate("a small", **options)
    assert page.post("/generate", json={"prompt": "a small", **options}).json() == {"texts": [expected]}
    assert page.post("/generate", json={"prompt": "a small", **options, "stream": True}).text == expected
    two = page.post("/generate", json={"prompt": "a small", **options, "num_samples": 2}).json()["texts"]
    assert two == writer.generate("a small", 2, **options)


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ({"prompt": "a", "lenght": 3}, "did you mean 'length'?"),
        ({"prompt": "a", "num_samples": 9}, "num_samples=9: use a whole number up to 8"),
        ({"prompt": "a" * 10_001}, "a text has 10,001 characters: use up to 10,000"),
        ({"prompt": "a", "temperature": -1, "stream": True}, "temperature=-1"),
        (["a"], "send a JSON object"),
        ({"prompt": "a", "self": 1}, "unknown option 'self'"),
        ({"prompt": "a", "decoding": {"length": 5}}, "unknown option 'decoding'"),
        ({"prompt": "a", "stream": "yes"}, "stream: use true or false"),
        ({"prompt": "a", "temperature": 10**400}, "temperature: a number of 1329 bits"),
        ({"prompt": "a", "seed": 10**400}, "seed: a number of 1329 bits"),
        ({"prompt": ["a"]}, 'send {"prompt": "some text"}'),
    ],
)
def test_invalid_generation_requests(writer, body, message):
    assert message in error_of(client(writer).post("/generate", json=body))


def test_invalid_json(writer):
    page = client(writer)
    for content in (b"{", b"\xff\xfe", b"[" * 100_000):
        assert "not valid JSON" in error_of(page.post("/generate", content=content))
    assert "surrogates not allowed" in error_of(page.post("/generate", content=b'{"prompt": "a\\ud800"}'))
    assert "more than 10 MB" in error_of(page.post("/generate", content=b" " * (serving.MAX_BYTES + 1)), 413)


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({}, 400),  # a program that sends an invalid request
        ({"Sec-Fetch-Site": "cross-site"}, 403),
        ({"Origin": "http://evil.example"}, 403),
    ],
)
def test_requests_from_other_sites_are_rejected(digits, writer, headers, status):
    form = {"file": ("x.png", b"nothing")}
    error_of(client(digits).post("/predict", files=form, headers=headers), status)
    error_of(client(writer).post("/generate", content=b"{", headers=headers), status)


def test_a_loopback_server_accepts_only_its_own_host_names(digits):
    for host, expected in (("127.0.0.1", True), ("::1", True), ("localhost", True), ("0.0.0.0", False)):
        try:
            listener = listen(host, 0)
        except zoo.InputError:
            continue  # a computer without IPv6
        with listener:
            app = serving.application(digits, "a model", host_names(listener, host))
        page = TestClient(app, raise_server_exceptions=False)
        for name in ("127.0.0.1:7860", "localhost:7860", "LOCALHOST"):
            assert page.get("/", headers={"Host": name}).status_code == 200
        for name in ("evil.example", "localhost.evil.example", "evil.example:7860", "127.0.0.1.evil.example"):
            assert page.get("/", headers={"Host": name}).status_code == (400 if expected else 200)


@pytest.mark.parametrize("row", [1, None, True, 1.5, {"a": 1}, [], [1], [None], [[]], ["a", 1]], ids=str)
def test_rows_that_are_not_texts(corpus, tmp_path, row):
    texts = untrained(f"text(path='{corpus(tmp_path / 'text.tsv', 'text')}')", "fasttext(dim=8, hidden=8)")
    assert "expects text" in error_of(client(texts).post("/predict", json={"inputs": [row]}))
    with raises("invalid", "expects text"):
        texts.predict([row])


@pytest.mark.parametrize("row", ["/etc/hostname", "rows.csv", 1, None, {"a": 1}, [], [[]], ["a"], [None]], ids=str)
def test_rows_that_are_not_numbers(row):
    numbers = untrained("rotation", "linear")
    error_of(client(numbers).post("/predict", json={"inputs": [row]}))
    with raises("invalid"):
        numbers.predict([row])


def test_numbers_of_400_digits():
    numbers = untrained("rotation", "linear")
    row = [10**400] * numbers.info.in_features
    assert "not an array of numbers" in error_of(client(numbers).post("/predict", json={"inputs": [row]}))
    with raises("invalid", "not an array of numbers"):
        numbers.predict([row])


def test_numbers_never_name_a_file(tmp_path, monkeypatch):
    """A model of a table reads files in Python, but not for a request."""
    monkeypatch.chdir(tmp_path)
    write_sound(tmp_path / "model", "table")
    (tmp_path / "rows.csv").write_text("a,b,c\n1,2,x\n")
    model = zoo.load("model")
    assert len(model.predict(["rows.csv"])) == 1
    page = client(model)
    assert "rows of numbers" in error_of(page.post("/predict", json={"inputs": ["rows.csv"]}))
    assert "objects by column name" in error_of(page.post("/predict", json={"inputs": [3]}))


def test_rows_of_a_table_by_column_name(tmp_path):
    write_sound(tmp_path / "model", "table")
    model = zoo.load(tmp_path / "model")
    page, row = client(model), {"c": "x", "a": 1, "b": 2}
    answer = page.post("/predict", json={"inputs": [row, [1, 2, "x"]]}).json()["predictions"]
    assert [reply["probability"] for reply in answer] == [model.predict(row)[0]["probability"]] * 2
    for wrong in ({"a": 1}, {}, row | {"a": {"b": [1]}}, row | {"a": "rows.csv"}):
        assert "column" in error_of(page.post("/predict", json={"inputs": [wrong]}))


def test_waiting_requests_do_not_hold_decoded_images(digits, monkeypatch):
    """Only the request whose turn it is decodes its images."""
    decoded, most = set(), []
    open_image, rows = serving.open_image, digits.predict

    def opened(data, name, limit=serving.MAX_PIXELS):
        decoded.add(threading.get_ident())
        most.append(len(decoded))
        return open_image(data, name, limit)

    def predict(*arguments, **options):
        time.sleep(0.05)
        try:
            return rows(*arguments, **options)
        finally:
            decoded.discard(threading.get_ident())

    monkeypatch.setattr(serving, "open_image", opened)
    monkeypatch.setattr(digits, "predict", predict)
    page = client(digits)
    with page, ThreadPoolExecutor(8) as pool:
        replies = list(pool.map(lambda number: page.post("/predict", files={"file": ("x.png", picture(number))}), range(8)))
    assert [reply.status_code for reply in replies] == [200] * 8
    assert most == [1] * 8


def test_the_defaults_of_a_model_are_within_the_limits_of_a_request(tmp_path):
    """A model folder may request texts of 100,000 tokens and 256 hypotheses."""
    write_sound(tmp_path / "model", "letters")
    config(decoding={"length": 100_000, "beam": 256})(tmp_path / "model", tmp_path)
    seal(tmp_path / "model")
    model = zoo.load(tmp_path / "model")
    decoding = serving.Served(model, "a model").model.task.decoding
    assert (decoding.length, decoding.beam) == (serving.LIMITS["length"], serving.LIMITS["beam"])
    assert model.task.decoding.length == 100_000


def test_texts_pairs_and_numbers(corpus, tmp_path):
    (tmp_path / "a file").write_text("good\nbad\nfine")
    places = {kind: corpus(tmp_path / f"{kind}.tsv", kind) for kind in ("text", "pairs", "ranking")}
    net = "fasttext(dim=8, hidden=8)"
    texts = untrained(f"text(path='{places['text']}')", net)
    rows = client(texts).post("/predict", json={"inputs": [str(tmp_path / "a file"), "a good film"]}).json()["predictions"]
    assert [row["text"] for row in rows] == [str(tmp_path / "a file"), "a good film"]  # not the lines of the file
    assert rows[1]["probability"] == texts.predict("a good film")[0]["probability"]
    for kind, key in (("pairs", "probability"), ("ranking", "relevance")):
        model = untrained(f"{kind}(path='{places[kind]}')", net)
        page = client(model)
        (row,) = page.post("/predict", json={"inputs": [["a good film", "a bad film"]]}).json()["predictions"]
        assert row[key] == model.predict([("a good film", "a bad film")])[0][key]
        assert "expected two" in error_of(page.post("/predict", json={"inputs": ["a good film"]}))
        long = ["a", "a" * (serving.MAX_PROMPT + 1)]
        assert error_of(page.post("/predict", json={"inputs": [long]})) == "a text has 10,001 characters: use up to 10,000"
    numbers = untrained("rotation", "linear")
    row = [0.5] * numbers.info.in_features
    page = client(numbers)
    (answer,) = page.post("/predict", json={"inputs": [row]}).json()["predictions"]
    assert answer["output"] == numbers.predict(torch.tensor([row]))[0]["output"]
    assert "not an array of numbers" in error_of(page.post("/predict", json={"inputs": [["a"]]}))
    assert "1 to 256 at a time" in error_of(page.post("/predict", json={"inputs": [row] * 257}))
    assert "0 inputs" in error_of(page.post("/predict", json={"inputs": []}))
    with raises("invalid", "no task"):
        serving.application(Model(texts.net, ModelConfig()), "alone")


# --- the page in a browser ---


@pytest.fixture
def opened(monkeypatch, tmp_path):
    """Open the page of a model in a browser, run a script on it, and return what it sends."""
    if BROWSER is None:
        pytest.skip("no Chromium is installed")
    with contextlib.ExitStack() as ended:

        def run(model, script, width=900):
            class Probed(serving.Served):
                async def page(self, request: Request):
                    reply = await super().page(request)
                    return type(reply)(
                        reply.body.decode() + PROBE % script, headers={"Content-Security-Policy": serving.POLICY}
                    )

            async def probe(request: Request):
                seen.put(await request.json())
                return Response()

            seen = queue.Queue()
            monkeypatch.setattr(serving, "Served", Probed)
            app = serving.application(model, "a <b>model")
            app.router.routes.append(Route("/probe", probe, methods=["POST"]))
            listener = socket.create_server(("127.0.0.1", 0))
            server = uvicorn.Server(uvicorn.Config(app, log_level="error", lifespan="off"))
            thread = threading.Thread(target=server.run, args=([listener],))
            thread.start()
            ended.callback(thread.join)
            ended.callback(setattr, server, "should_exit", True)
            address = f"http://127.0.0.1:{listener.getsockname()[1]}/"
            ended.enter_context(browsing(address, tmp_path / "profile", width))
            return seen.get(timeout=60)

        yield run


def test_an_image_is_classified_in_the_browser(opened, digits):
    from base64 import b64encode

    good, bad = (b64encode(data).decode() for data in (picture(4), b"nothing"))
    script = f'await upload("four.png", "{good}"); const first = shown(); await upload("bad.png", "{bad}");'
    script += "const second = shown(); await draw([[[.5, .2], [.5, .8]]]); put([first, second, shown()]);"
    first, second, drawn = opened(digits, script, 500)
    lines = [line for line in first["answer"].splitlines() if line]
    assert lines[0] == "4"
    assert lines[1] == "4"  # the most probable label leads the bars
    assert lines[2].endswith("%")
    assert first["bars"][0] > 0.95
    assert max(first["bars"][1:]) < 0.05
    assert (first["title"], first["error"]) == ("a <b>model", "")
    assert set(first["fetched"]) == {"/predict"}
    assert first["overflow"] <= 0
    assert second["error"] == "bad.png cannot be read: send a PNG, JPEG, GIF, BMP or WebP image"
    assert second["answer"] == ""
    assert drawn["answer"].splitlines()[0] == "1"
    assert "ms\nfor the answer" in drawn["stats"]


# --- the command ---


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["no-such-model", "--port", "0"], "there is no folder 'no-such-model'"),
        (["vit-digits-quaternion", "--port", "65536"], "--port 65536: use a whole number from 0 to 65535"),
    ],
)
def test_invalid_arguments(arguments, message, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main(["serve", *arguments]) == 2
    out, err = capsys.readouterr()
    assert (out, len(err.splitlines())) == ("", 1)
    assert message in err


def test_serve_until_ctrl_c(tmp_path):
    stuck = "import sys, time; from zoo.cli import main; from zoo_serving.application import Served;"
    stuck += "Served.rows = lambda *_: print('busy', flush=True) or time.sleep(600); sys.exit(main(sys.argv[1:]))"
    command = [sys.executable, "-c", stuck, "serve", "vit-digits-quaternion", "--port", "0", "--device", "cpu"]
    with subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        line, advice = process.stdout.readline(), process.stdout.readline()
        assert advice == "Ctrl-C ends it\n"
        name, _, address = line.strip().partition(" is at ")
        assert name == "vit-digits-quaternion"
        port = address.rpartition(":")[2]
        with urlopen(address) as page:  # its signal handlers are installed
            assert name in page.read().decode()
        again = subprocess.run([*command[:-4], "--port", port], capture_output=True, text=True, check=False)
        assert (again.returncode, again.stdout) == (2, "")
        assert len(again.stderr.splitlines()) == 1
        assert port in again.stderr
        ask = partial(httpx2.post, f"{address}/predict", files={"file": picture()}, timeout=60)
        with ThreadPoolExecutor() as pool:
            answer = pool.submit(ask)
            assert process.stdout.readline() == "busy\n"
            process.send_signal(2)  # it does not wait for the answer
            out, err = process.communicate(timeout=60)
        assert answer.result().status_code == 500
    assert (process.returncode, out, err) == (0, "", "")
