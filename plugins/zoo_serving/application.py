"""A web page and a JSON interface for a trained model."""

import json
import threading
from collections.abc import Iterator, Sequence
from importlib.resources import files
from io import BytesIO
from typing import Any
from urllib.parse import urlsplit

import torch
from lightning.pytorch.utilities import move_data_to_device
from PIL import Image
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.datastructures import UploadFile
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.middleware.trustedhost import TrustedHostMiddleware
from starlette.requests import ClientDisconnect, Request
from starlette.responses import HTMLResponse, JSONResponse, Response, StreamingResponse
from starlette.routing import Route
from starlette.types import Message

from zoo.backbones.build import count
from zoo.data.info import ImageInfo, VectorInfo
from zoo.errors import InputError, check_rules, one_line
from zoo.inference.model import Model
from zoo.tasks import GenerativeTask
from zoo.tasks.decoding.options import temperature_of
from zoo_serving.connections import LimitedRequests

MAX_BYTES = 10 * 2**20
"""Bytes of a request: room for a photograph."""
MAX_PIXELS = 50_000_000
"""Pixels of all images of a request."""
MAX_INPUTS = 256
MAX_SAMPLES = 8
MAX_LENGTH = 1000
"""Tokens that one request may ask for."""
MAX_BEAM = 16
MAX_PROMPT = 10_000
"""Characters of a text: attention over it takes time by their square."""
POLICY = "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; img-src data: blob:; connect-src 'self'"


def application(model: Model, name: str, hosts: Sequence[str] = ("*",)) -> Starlette:
    """Return the ASGI application of a model: the page, ``POST /predict`` and ``POST /generate``.

    Args:
        model: A model with a task; of any task, ours or a third party's, whose inputs are images, texts or numbers.
        name: What to call it on the page.
        hosts: The names that it answers to, by default any. A server of this computer alone has to name them: a page of
            another site, whose name leads here from one moment to the next (DNS rebinding), would be taken for its own.

    Raises:
        InputError: If the model is a network alone.
    """
    model.configured({})  # refuses a network without a task
    served = Served(model, name)
    routes = [
        Route("/", served.page),
        Route("/predict", served.predict, methods=["POST"]),
        Route("/generate", served.generate, methods=["POST"]),
    ]
    hosts_alone = Middleware(TrustedHostMiddleware, allowed_hosts=[*hosts], www_redirect=False)
    handlers = {InputError: refused, HTTPException: refused, ClientDisconnect: disconnected, Exception: failed}
    return Starlette(routes=routes, middleware=[Middleware(LimitedRequests), hosts_alone], exception_handlers=handlers)


async def refused(request: Request, error: Exception) -> Response:
    """Say in one line what is wrong with a request."""
    text, status = (error.detail, error.status_code) if isinstance(error, HTTPException) else (one_line(error), 400)
    return JSONResponse({"error": text}, status)


async def disconnected(request: Request, error: Exception) -> Response:
    """End a request whose client has closed the connection."""
    return Response(status_code=400)


async def failed(request: Request, error: Exception) -> Response:
    """Say that the defect is ours; the server's log has the rest."""
    return JSONResponse({"error": f"{type(error).__name__}: {one_line(error)}"}, 500)


class Served:
    """A model behind a web page; it answers one request at a time.

    Args:
        model: The model.
        name: What to call it.
    """

    def __init__(self, model: Model, name: str) -> None:
        self.model, self.name, self.lock = model, name, threading.Lock()
        info = model.info
        self.reads = "image" if isinstance(info, ImageInfo) else "numbers" if isinstance(info, VectorInfo) else "text"

    # --- the page ---

    async def page(self, request: Request) -> Response:
        """Return the page, which fetches nothing else."""
        text = files("zoo_serving").joinpath("page.html").read_text(encoding="utf-8")
        facts = json.dumps(self.facts()).replace("<", "\\u003c")
        return HTMLResponse(text.replace("{{facts}}", facts), headers={"Content-Security-Policy": POLICY})

    def facts(self) -> dict[str, Any]:
        """Return what the page shows of the model and has to know of its inputs."""
        task, config = self.model.task, self.model.config
        metrics = {name: value for name, value in self.model.metrics.items() if name != "loss" and value is not None}
        facts: dict[str, Any] = {"name": self.name, "reads": self.reads}
        facts |= {"columns": list(getattr(task, "columns", ())), "metrics": metrics}
        facts |= {key: str(config.get(key) or "") for key in ("backbone", "algebra", "task", "data")}
        facts |= {"parameters": count(self.model.net)["total"], "max_bytes": MAX_BYTES, "generates": False}
        if isinstance(task, GenerativeTask):
            facts |= {"generates": True, "continues": task.continues_prompt, "max_length": MAX_LENGTH}
            facts["temperature"] = temperature_of(task.decoding, not task.continues_prompt)
        if isinstance(self.model.info, VectorInfo):
            facts["in_features"] = self.model.info.in_features
        return facts

    # --- predictions ---

    async def predict(self, request: Request) -> Response:
        """Answer ``{"inputs": [...]}``, or images uploaded as ``file``, with ``{"predictions": [{...}, ...]}``."""
        inputs = await (self.images(request) if self.reads == "image" else self.texts(request))
        many = f"{len(inputs)} inputs: send 1 to {MAX_INPUTS} at a time"
        check_rules((0 < len(inputs) <= MAX_INPUTS, many))
        return JSONResponse({"predictions": await run_in_threadpool(self.rows, inputs)})

    async def images(self, request: Request) -> list[Any]:
        """Read the images of a form."""
        how = "this model reads images: curl -F file=@picture.png ADDRESS/predict"
        check_rules((request.headers.get("content-type", "").lower().startswith("multipart/form-data"), how))
        async with limited(request).form(max_files=MAX_INPUTS) as form:
            uploads = [upload for upload in form.getlist("file") if isinstance(upload, UploadFile)]
            check_rules((bool(uploads), f"there is no file in the form: {how}"))
            images: list[Image.Image] = []
            for upload in uploads:
                left = MAX_PIXELS - sum(image.width * image.height for image in images)
                images.append(await run_in_threadpool(open_image, await upload.read(), upload.filename or "the file", left))
            return images

    async def texts(self, request: Request) -> list[Any]:
        """Read texts, or rows of numbers, which are never taken for the names of files."""
        inputs: Any = (await read_json(request)).get("inputs")
        example = {"numbers": "[[0.5, 1]]", "text": '["some text"]'}[self.reads]
        columns = getattr(self.model.task, "columns", ())
        if self.reads == "text" and len(columns) > 1:
            example = json.dumps([[f"the {name}" for name in columns]])
        check_rules((isinstance(inputs, list), f'send {{"inputs": {example}}}'))
        if self.reads == "numbers":
            return list(inputs)
        rows = [(row,) if isinstance(row, str) else tuple(row) if isinstance(row, list) else row for row in inputs]
        check_rules((all(isinstance(row, tuple) for row in rows), f'send {{"inputs": {example}}}'))
        longest = max((len(text) for row in rows for text in row if isinstance(text, str)), default=0)
        check_rules((longest <= MAX_PROMPT, f"a text has {longest:,} characters: use up to {MAX_PROMPT:,}"))
        return rows

    def rows(self, inputs: list[Any]) -> list[dict[str, Any]]:
        """Return the predictions that ``zoo predict`` prints; of a label also the probabilities of all labels."""
        task, info = self.model.configured({}), self.model.info
        with self.lock, torch.inference_mode():
            examples = list(task.read_inputs(info, inputs))
            outputs = task.predict_step(move_data_to_device(task.collate(examples), self.model.device), 0)
            rows = task.prediction_rows(examples, outputs)
        classes = getattr(info, "classes", ())
        if classes and isinstance(outputs, torch.Tensor) and outputs.shape == (len(rows), len(classes)):
            for row, values in zip(rows, outputs.tolist(), strict=True):
                if "probability" in row:
                    row["probabilities"] = {name: round(value, 6) for name, value in zip(classes, values, strict=True)}
        return rows

    # --- texts ---

    async def generate(self, request: Request) -> Response:
        """Answer ``{"prompt": "...", ...}`` with ``{"texts": [...]}``, or with ``"stream": true`` with plain text as it comes.

        Other keys are ``num_samples`` and the options of `zoo.tasks.decoding.Decoding`.
        """
        options = await read_json(request)
        prompt, samples, stream = options.pop("prompt", None), options.pop("num_samples", 1), options.pop("stream", False)
        check_rules(
            (isinstance(prompt, str | None), 'send {"prompt": "some text"}'),
            (type(samples) is int, f"num_samples={samples!r:.40}: use a whole number up to {MAX_SAMPLES}"),
            ("self" not in options, "unknown option 'self'"),  # which Python would take for the model
        )
        length = len(prompt or "")
        check_rules((length <= MAX_PROMPT, f"the prompt has {length:,} characters: use up to {MAX_PROMPT:,}"))
        limits = {"num_samples": (samples, MAX_SAMPLES), "length": (options.get("length"), MAX_LENGTH)}
        for name, (value, most) in (limits | {"beam": (options.get("beam"), MAX_BEAM)}).items():
            fine = value is None or (type(value) is int and value <= most)
            check_rules((fine, f"{name}={value!r:.40}: use a whole number up to {most}"))
        if stream:
            pieces = await run_in_threadpool(self.begun, prompt, samples, options)
            return StreamingResponse(self.alone(pieces), media_type="text/plain; charset=utf-8")
        return JSONResponse({"texts": await run_in_threadpool(self.generated, prompt, samples, options)})

    def generated(self, prompt: Any, samples: int, options: dict[str, Any]) -> list[Any]:
        """Generate texts after a prompt."""
        with self.lock:
            return list(self.model.generate(prompt, samples, **options))

    def begun(self, prompt: Any, samples: int, options: dict[str, Any]) -> Iterator[str]:
        """Begin a text that comes in pieces; with a beam all of it is computed here."""
        with self.lock:
            return self.model.generate(prompt, samples, stream=True, **options)

    def alone(self, pieces: Iterator[str]) -> Iterator[str]:
        """Yield pieces of a text, each computed while nobody else computes."""
        while True:
            with self.lock:
                piece = next(pieces, None)
            if piece is None:
                return
            yield piece


def limited(request: Request) -> Request:
    """Return a request whose body is refused as soon as it is too long, and at once if a page of another site sends it.

    Browsers say so in Sec-Fetch-Site, older ones in Origin; a program sends neither.
    """
    origin, site = request.headers.get("origin"), request.headers.get("sec-fetch-site")
    is_own = urlsplit(origin or "").netloc == request.headers.get("host") or origin is None
    if not (is_own if site is None else site in ("same-origin", "none")):
        raise HTTPException(403, "a page of another site cannot use this server")
    size = 0

    async def receive() -> Message:
        nonlocal size
        message = await request.receive()
        size += len(message.get("body", b""))
        if size > MAX_BYTES:
            raise HTTPException(413, f"more than {MAX_BYTES >> 20} MB: send a smaller file")
        return message

    return Request(request.scope, receive)


async def read_json(request: Request) -> dict[str, Any]:
    """Read a JSON object."""
    try:
        value = json.loads(await limited(request).body())
        json.dumps(value, ensure_ascii=False).encode()  # half a surrogate pair is no text
    except (ValueError, RecursionError) as error:
        raise InputError(f"the request is no JSON: {one_line(error)}") from error
    check_rules((isinstance(value, dict), 'send a JSON object, such as {"inputs": ["some text"]}'))
    return value  # type: ignore[no-any-return]


def open_image(data: bytes, name: str, most: int = MAX_PIXELS) -> Image.Image:
    """Read an image of so many pixels at most."""
    try:
        image = Image.open(BytesIO(data), formats=("PNG", "JPEG", "GIF", "BMP", "WEBP"))
        width, height = image.size
        check_rules(
            (width * height <= most, f"{name} has {width} x {height} pixels: send up to {MAX_PIXELS:,}, all images together")
        )
        image.load()
    except InputError:
        raise
    except Exception as error:  # decoders raise errors of many classes
        raise InputError(f"{name} is no image that can be read: send a PNG, JPEG, GIF, BMP or WebP") from error
    return image
