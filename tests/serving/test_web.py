"""Exported pages: the numbers that they compute in a browser, what they need, and what they cannot do."""

import errno
import io
import json
import queue
import random
import shutil
import subprocess
import tarfile
import threading
from base64 import b64encode
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from PIL import __version__ as pillow
from zoo_export import runtime, web
from zoo_export.export import WRITERS, export
from zoo_export.runtime import FILES, PACKAGE, WASM, Runtime, find_runtime

import zoo
from tests.cli.conftest import call, refused  # noqa: F401 (fixtures)
from tests.errors import raises
from tests.faults.hostile import write_sound
from tests.serving.browser import BROWSER, PROBE, browsing
from zoo.data.info import ImageInfo
from zoo.data.pixels import preprocess, to_pixels
from zoo.data.tokenizer import train_corpus_tokenizer, train_tokenizer

for name in ("onnx", "onnxscript", "onnxruntime"):
    pytest.importorskip(name, reason="needs hypercomplex-zoo[onnx]")


SCRIPT = Path(runtime.__file__).with_name("inference.js")
NODE = shutil.which("node")
FAKE = Runtime("9.9.9", dict.fromkeys(FILES, b"nothing"))


# --- pixels and tokens, without a browser ---


def computed(script, given):
    """Return the JSON value of an expression over the functions of inference.js and a given value."""
    if NODE is None:
        pytest.skip("node is not installed")
    code = f"import {{resize, pixelsOf, tokenizerOf}} from {json.dumps(SCRIPT.as_uri())};\n"
    code += f"const given = JSON.parse(require('node:fs').readFileSync(0)); console.log(JSON.stringify({script}));"
    code = "import {createRequire} from 'node:module'; const require = createRequire('file:///'); " + code
    done = subprocess.run([NODE, "--input-type=module", "-e", code], input=json.dumps(given), capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


SIZES = [(8, 8), (8, 17), (5, 3), (61, 37), (200, 41), (28, 28)]
if int(pillow.partition(".")[0]) >= 13:  # before, tall images were resized in another order
    SIZES += [(33, 300), (33, 100), (33, 60)]


@pytest.mark.parametrize(("channels", "size"), [(1, 8), (3, 28)])
def test_pixels_are_those_of_pillow(channels, size):
    draw = np.random.default_rng(0)
    images = [draw.integers(0, 256, (high, wide, 3), np.uint8) for wide, high in SIZES]
    images += [np.kron(draw.integers(0, 2, (9, 11, 3), np.uint8) * 255, np.ones((7, 7, 1), np.uint8))]  # overshoots
    facts = {"in_channels": channels, "image_size": size, "mean": (0.3,) * channels, "std": (0.4,) * channels}
    info = ImageInfo(classes=("a", "b"), sizes={}, **facts)
    given = [
        {"data": np.dstack([x, np.full(x.shape[:2], 255)]).ravel().tolist(), "width": x.shape[1], "height": x.shape[0]}
        for x in images
    ]
    found = computed("given.images.map(image => Array.from(pixelsOf(image, given.facts)))", {"images": given, "facts": facts})
    for pixels, x in zip(found, images, strict=True):
        expected = preprocess(Image.fromarray(x), info)
        torch.testing.assert_close(torch.tensor(pixels).view_as(expected), expected, rtol=0, atol=1e-5)
    assert len({to_pixels(Image.fromarray(x), channels, size).sum().item() for x in images}) > 2


ALPHABET = "abcdeSTnt' ’\"n't 's'll RE.,;:!?-_()[]{}#@\t\n\r  0123456789"
ALPHABET += "éÉßſıİΣσςЖжאבجد語汉字ⅧⅷⒶ①²₂½…—“”\u0301\u0345\u00ad\u200d\u200b\u0085\u2028\ufeff😀👩‍🚀ǅﬁ"


def texts(count=400):
    draw = random.Random(0)
    words = [
        "isn't",
        "we'll",
        "can’t",
        "don't!",
        "[PAD]",
        "[UNK]",
        "[EOS]",
        "the",
        "film",
        "is",
        "ain't",
        "it's",
        "café",
        "ΣΑΣ",
    ]
    rows = ["".join(draw.choices(ALPHABET, k=draw.randrange(1, 30))) for _ in range(count)]
    return [*rows, *(draw.choice(("", " ")).join(draw.choices(words, k=draw.randrange(1, 8))) for _ in range(count))]


@pytest.mark.parametrize("lowercase", [True, False])
@pytest.mark.parametrize("kind", ["word", "space", "char", "bpe", "bpe, running"])
def test_tokens_are_those_of_the_model(kind, lowercase):
    rows = texts()
    if kind in ("char", "bpe, running"):
        tokenizer = train_corpus_tokenizer(kind.partition(",")[0], rows[::2], 400, lowercase)
    else:
        tokenizer = train_tokenizer(kind, rows[::2], 400, lowercase, 1, ends=True)
    expected = []
    for row in rows:
        try:
            expected.append(tokenizer.encode([row], ended=tokenizer.has_end)[0].tolist())
        except zoo.InputError:
            expected.append("no words in this text")
    ended = json.dumps(tokenizer.has_end)
    encode = f"(text => {{ try {{ return tokenizer.encode(text, {ended}); }} catch (error) {{ return error.message; }} }})"
    script = "(({state, rows}) => { const tokenizer = tokenizerOf(state); return rows.map(text => { const ids = "
    script += f"{encode}(text); return [ids, typeof ids === 'string' ? null : tokenizer.decode(ids)]; }}); }})(given)"
    found = computed(script, {"state": json.loads(tokenizer.to_json()), "rows": rows})
    assert [ids for ids, _ in found] == expected
    assert [text for _, text in found] == [None if isinstance(ids, str) else tokenizer.decode(ids) for ids in expected]


# --- the page in a browser ---


@pytest.fixture(scope="module")
def page_of(tmp_path_factory):
    """Return a function that exports a model as a page."""
    try:
        found = find_runtime()
    except zoo.InputError as error:
        pytest.skip(str(error))
    if BROWSER is None:
        pytest.skip("no Chromium is installed")

    def write(model, **options):
        folder = tmp_path_factory.mktemp("web") / "page"
        return folder, export(model, folder, "web", runtime=found, title="a <b>page", **options)

    return write


class Handler(SimpleHTTPRequestHandler):
    """Serve static files with a script at the end of the page, and take what the script sends."""

    script, seen = "", queue.Queue()

    def do_GET(self):
        if self.path != "/":
            return super().do_GET()
        page = Path(self.directory, "index.html").read_text(encoding="utf-8") + PROBE % self.script
        self.send_response(200)
        self.send_header("Content-Type", "text/html")
        self.end_headers()
        return self.wfile.write(page.encode())

    def do_POST(self):
        self.seen.put(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
        self.send_response(204)
        self.end_headers()

    def log_message(self, *arguments):
        pass


def visited(folder, script, profile, width=900):
    """Return what a script sends from the page of a folder."""
    seen = queue.Queue()
    handler = partial(type("Visited", (Handler,), {"script": script, "seen": seen}), directory=folder)
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever).start()
        try:
            with browsing(f"http://127.0.0.1:{server.server_address[1]}/", profile, width):
                found = seen.get(timeout=60)
        finally:
            server.shutdown()
    assert "thrown" not in found, found
    return found


def png(pixels):
    out = io.BytesIO()
    Image.fromarray(pixels).save(out, "PNG")
    return out.getvalue()


ANSWER = "((await (await model).logits({})))"


def test_a_page_classifies_pictures_and_drawings(page_of, tmp_path):
    model = zoo.load("vit-digits-quaternion")
    folder, result = page_of(model)
    assert result["max_difference"] < 1e-4
    draw = np.random.default_rng(0)
    pictures = [draw.integers(0, 256, shape, np.uint8) for shape in ((8, 8), (90, 200, 3), (41, 23))]
    for path, picture in zip("abc", pictures, strict=True):
        (tmp_path / f"{path}.png").write_bytes(png(picture))
    encoded = json.dumps([b64encode(png(picture)).decode() for picture in pictures])
    script = f"""
    const logits = []; for (const one of {encoded}) logits.push(Array.from(await (await model).logits(blob("a.png", one))));
    await draw([[[.15, .2], [.2, .3], [.25, .6]]]); const drawn = shown();
    const bytes = [...new Uint8Array(await file.arrayBuffer())], sent = Array.from(await (await model).logits(file));
    await upload("bad.png", "bm90aGluZw=="); put({{logits, drawn, bytes, sent, bad: shown()}});
    """
    found = visited(folder, script, tmp_path / "profile", 500)
    (tmp_path / "drawn.png").write_bytes(bytes(found["bytes"]))
    images = [Image.open(tmp_path / f"{name}.png") for name in ("a", "b", "c", "drawn")]
    with torch.no_grad():
        expected = model.net(torch.stack([preprocess(image, model.info) for image in images]))
    torch.testing.assert_close(torch.tensor([*found["logits"], found["sent"]]), expected, rtol=0, atol=1e-4)
    left, top, right, bottom = images[-1].convert("L").point(lambda level: 255 * (level > 127)).getbbox()
    assert abs(left + right - 224) <= 2  # a drawing in a corner is moved to the middle, and fills the picture
    assert abs(top + bottom - 224) <= 2
    assert 210 < bottom - top <= 224
    drawn = found["drawn"]
    (row,) = model.predict([str(tmp_path / "drawn.png")])
    assert drawn["answer"].splitlines()[0] == row["label"] == "1"
    assert (drawn["error"], drawn["title"]) == ("", "a <b>page")
    assert drawn["overflow"] <= 0
    assert f"{result['bytes'] / 1e3:.1f} kB" in drawn["stats"]
    assert f"{result['runtime_bytes'] / 1e6:.1f} MB" in drawn["stats"]
    assert "ms\nfor the answer" in drawn["stats"]
    assert {path.lstrip("/") for path in drawn["fetched"]} < {path.name for path in folder.iterdir()}
    assert found["bad"]["error"] == "bad.png cannot be read: use a PNG, JPEG, GIF, BMP or WebP image"


def test_a_page_reads_texts(page_of, tmp_path):
    model = zoo.load("transformer-entailment-quaternion")
    folder, _ = page_of(model, quantize="int8", measure=False)
    pair = ["a and b", "b or not c"]
    script = f"""
    const logits = Array.from(await (await model).logits({json.dumps(pair)}));
    const areas = [...document.querySelectorAll("textarea")]; {json.dumps(pair)}.forEach((text, i) => areas[i].value = text);
    form.requestSubmit(); await settled(); const first = shown();
    areas[1].value = " "; form.requestSubmit(); await settled(); const empty = shown();
    areas[1].value = "a or b"; facts.web.max_tokens = 2;
    form.requestSubmit(); await settled(); put([logits, first, empty, shown()]);
    """
    logits, first, empty, long = visited(folder, script, tmp_path / "profile")
    small = zoo.quantize(model)
    with torch.no_grad():
        expected = small.net(*(model.tokenizer.encode([text]).padded() for text in pair))[0]
    torch.testing.assert_close(torch.tensor(logits), expected, rtol=0, atol=1e-4)
    assert first["answer"].splitlines()[0] == small.predict([tuple(pair)])[0]["label"]
    assert (empty["error"], empty["answer"]) == ("fill in both texts", "")
    assert long["error"] == "3 tokens, the model reads at most 2: use a shorter text"


@pytest.mark.parametrize(
    "name", ["gpt-glosses-quaternion", *(pytest.param(x, marks=pytest.mark.slow) for x in ("bytes", "answers", "xl"))]
)
def test_a_page_generates_the_text_of_greedy_decoding(page_of, name, tmp_path):
    if name == "xl":
        name = "transformer_xl-glosses-quaternion"
    elif name in ("bytes", "answers"):
        write_sound(tmp_path / "model", name)
        name = tmp_path / "model"
    model = zoo.load(name)
    folder, _ = page_of(model)
    prompt, continues = "a small", model.task.continues_prompt
    options = {"length": 25} | ({"temperature": 0.0} if continues else {})
    script = f"""
    const parts = [], options = {json.dumps({"prompt": prompt} | options)};
    for await (const part of (await model).generate(options)) parts.push(part);
    document.querySelector("textarea").value = "a small"; form.requestSubmit(); await settled();
    put([parts, shown()]);
    """
    parts, page = visited(folder, script, tmp_path / "profile")
    assert "".join(parts) == model.generate(prompt, **options)[0]
    assert page["error"] == ""
    assert page["answer"].startswith(prompt if continues else "")


# --- what a page needs ---


SOURCES = tuple(FILES.values())


def archive(path, name=PACKAGE, files=SOURCES):
    """Write an archive of npm with files of a few bytes."""
    with tarfile.open(path, "w:gz") as out:
        about = json.dumps({"name": name, "version": "1.2.3"}).encode()
        for member, content in {"package.json": about, **{f"dist/{file}": b"of " + file.encode() for file in files}}.items():
            info = tarfile.TarInfo(f"package/{member}")
            info.size = len(content)
            out.addfile(info, io.BytesIO(content))
    return path


def test_the_runtime_is_found(tmp_path, monkeypatch):
    monkeypatch.setenv("ZOO_HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path)
    with raises("dependency", "fetch it once: npm pack onnxruntime-web"):
        find_runtime()
    (tmp_path / "home").mkdir()
    file = archive(tmp_path / "home" / f"{PACKAGE}-1.2.3.tgz")
    expected = Runtime("1.2.3", {name: b"of " + source.encode() for name, source in FILES.items()})
    assert find_runtime() == find_runtime(file) == find_runtime(tmp_path / "home") == expected
    with tarfile.open(file) as opened:
        opened.extractall(tmp_path / "unpacked", filter="data")
    assert find_runtime(tmp_path / "unpacked/package") == expected
    (tmp_path / "node_modules").mkdir()
    (tmp_path / "unpacked/package").rename(tmp_path / "node_modules" / PACKAGE)
    file.unlink()
    assert find_runtime() == find_runtime(tmp_path) == expected


def test_pages_that_cannot_be_written(refused, tmp_path, monkeypatch):  # noqa: F811
    name, options = "vit-digits-quaternion", ("--to", "x", "--format", "web")
    monkeypatch.setenv("ZOO_HOME", str(tmp_path / "home"))
    assert "--format web needs onnxruntime-web: fetch it once: npm pack onnxruntime-web@" in refused("export", name, *options)
    assert "there is no 'no-such'" in refused("export", name, *options, "--runtime", "no-such")
    (tmp_path / "empty").mkdir()
    assert "--runtime 'empty' contains no onnxruntime-web" in refused("export", name, *options, "--runtime", "empty")
    assert "--runtime requires --format web" in refused("export", name, "--to", "x", "--format", "onnx", "--runtime", "empty")
    assert "--quantize dynamic requires --format onnx" in refused("export", name, *options, "--quantize", "dynamic")
    whole = archive(tmp_path / "whole.tgz")
    (tmp_path / "damaged.tgz").write_bytes(whole.read_bytes()[:99])
    (tmp_path / "deep/dist").mkdir(parents=True)
    (tmp_path / "deep/dist" / WASM).touch()
    (tmp_path / "deep/package.json").write_text("[" * 100_000)
    archives = tmp_path / "damaged.tgz", archive(tmp_path / "few.tgz", files=[WASM]), archive(tmp_path / "x.tgz", "x")
    for broken in (*archives, tmp_path / "deep"):
        message = refused("export", name, *options, "--runtime", broken.name)
        assert f"'{broken.name}' is not a complete onnxruntime-web" in message
    for model in ("linear-hamilton-quaternion", "table"):
        if model == "table":
            write_sound(tmp_path / model, model)
        message = refused("export", model, *options, "--runtime", "whole.tgz")
        assert "--format web supports classifiers of images or texts and models that generate text, got a model of" in message


@pytest.mark.parametrize("at", ["inference.js", WASM])
def test_a_full_disk_leaves_no_page(at, tmp_path, monkeypatch):
    write = web.write_bytes

    def full(path, data):
        if path.name == at:
            raise OSError(errno.ENOSPC, "No space left on device")
        write(path, data)

    monkeypatch.setattr(web, "write_bytes", full)
    monkeypatch.setitem(WRITERS, "web", lambda model, net, file, output: file.write_text("a program") and {})
    with pytest.raises(OSError, match="No space"):
        export(zoo.load("fasttext-glosses-quaternion"), tmp_path / "x", "web", runtime=FAKE)
    assert not list(tmp_path.iterdir())


def test_a_folder_contains_all_that_a_page_needs(tmp_path):
    model = zoo.load("fasttext-glosses-quaternion")
    result = export(model, tmp_path / "page", "web", runtime=FAKE)
    names = {"index.html", "inference.js", "model.onnx", "config.json", "tokenizer.json", *FILES}
    assert {path.name for path in (tmp_path / "page").iterdir()} == names
    assert result["runtime_bytes"] == 2 * len(b"nothing")
    page = (tmp_path / "page/index.html").read_text(encoding="utf-8")
    facts = json.loads(page.split('type="application/json">')[1].split("</script>")[0])
    assert facts["name"] == "page"
    assert facts["web"]["bytes"] == result["bytes"] == (tmp_path / "page/model.onnx").stat().st_size
    assert facts["web"]["max_tokens"] == model.configured({}).tokenizer.max_length
    assert "http:" not in page.replace("http://127.0.0.1", "")
    assert "https:" not in page + SCRIPT.read_text(encoding="utf-8")
