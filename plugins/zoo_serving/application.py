"""A web page and a JSON interface for a trained model."""

import json
import threading
from collections.abc import Iterator, Sequence
from copy import copy
from dataclasses import replace
from io import BytesIO
from typing import Any
from urllib.parse import urlsplit

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

from zoo.data.info import TableInfo
from zoo.errors import InputError, one_line
from zoo.inference.model import Model
from zoo.tasks import GenerativeTask
from zoo.tasks.supervised import Classification
from zoo_serving.page import describe, kind_of_inputs, render

MAX_BYTES = 10 * 2**20  # limit of a request in bytes, enough for a photograph
MAX_PIXELS = 50_000_000  # limit of pixels in all images of a request
MAX_INPUTS = 256
LIMITS = {"num_samples": 8, "length": 1000, "beam": 16}  # limits of the options of generation
MAX_PROMPT = 10_000  # limit of characters in a text, because the cost of attention is quadratic
POLICY = "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; img-src data: blob:; connect-src 'self'"


def application(model: Model, name: str, hosts: Sequence[str] = ("*",)) -> Starlette:
    """Return the ASGI application of a model: the page, ``POST /predict`` and ``POST /generate``.

    Args:
        model: A model with a task whose inputs are images, texts or numbers.
        name: The name of the model on the page.
        hosts: Accepted host names, by default any. A server that only this computer can reach must list them; otherwise a
            web site could read its answers through DNS rebinding.
    """
    model.configured({})  # raises for a network without a task
    served = Served(model, name)
    routes = [
        Route("/", served.page),
        Route("/predict", served.predict, methods=["POST"]),
        Route("/generate", served.generate, methods=["POST"]),
    ]
    trusted_hosts = Middleware(TrustedHostMiddleware, allowed_hosts=[*hosts], www_redirect=False)
    handlers = {InputError: invalid, HTTPException: invalid, ClientDisconnect: invalid, Exception: invalid}
    return Starlette(routes=routes, middleware=[trusted_hosts], exception_handlers=handlers)


async def invalid(request: Request, error: Exception) -> Response:
    """Return the message of an error: of an invalid request, or of a bug, whose traceback is in the log of the server."""
    if isinstance(error, HTTPException):
        return JSONResponse({"error": error.detail}, error.status_code)
    is_bug = not isinstance(error, InputError | ClientDisconnect)
    return JSONResponse({"error": f"{type(error).__name__}: " * is_bug + one_line(error)}, 500 if is_bug else 400)


class Served:
    """Request handlers of a model, which processes one request at a time.

    Images are decoded in their turn, too, so that the memory for pixels does not depend on the number of waiting requests.
    """

    def __init__(self, model: Model, name: str) -> None:
        self.model, self.name, self.lock = model, name, threading.Lock()
        if isinstance(model.task, GenerativeTask):  # the options of the model may exceed the limits of a request
            self.model = copy(model)
            self.model.task = limited(model.task)
        self.reads = kind_of_inputs(model)

    # --- the page ---

    async def page(self, request: Request) -> Response:
        """Return the page, which loads no other resources."""
        facts = describe(self.model, self.name) | {"max_bytes": MAX_BYTES, "max_length": LIMITS["length"]}
        return HTMLResponse(render(facts), headers={"Content-Security-Policy": POLICY})

    # --- predictions ---

    async def predict(self, request: Request) -> Response:
        """Answer ``{"inputs": [...]}``, or images uploaded as ``file``, with ``{"predictions": [{...}, ...]}``."""
        inputs = await (self.images(request) if self.reads == "image" else self.values(request))
        if not 0 < len(inputs) <= MAX_INPUTS:
            raise InputError(f"{len(inputs)} inputs: send 1 to {MAX_INPUTS} at a time")
        return JSONResponse({"predictions": await run_in_threadpool(self.rows, inputs)})

    async def images(self, request: Request) -> list[Any]:
        """Read the images of a form, as names and encoded bytes."""
        usage = "this model reads images: curl -F file=@picture.png ADDRESS/predict"
        if not request.headers.get("content-type", "").lower().startswith("multipart/form-data"):
            raise InputError(usage)
        async with limit_body(request).form(max_files=MAX_INPUTS) as form:
            uploads = [upload for upload in form.getlist("file") if isinstance(upload, UploadFile)]
            if not uploads:
                raise InputError(f"the form contains no file: {usage}")
            return [(upload.filename or "the file", await upload.read()) for upload in uploads]

    async def values(self, request: Request) -> list[Any]:
        """Read texts or rows of numbers; text is never interpreted as a file name."""
        inputs: Any = (await read_json(request)).get("inputs")
        example: Any = [[f"the {name}" for name in getattr(self.model.task, "columns", ("text",))]]
        if self.reads == "numbers":
            example = [[0.5, 1]]
        if not isinstance(inputs, list):
            raise InputError(f'send {{"inputs": {json.dumps(example)}}}')
        if self.reads == "numbers":
            if not all(isinstance(row, list | dict) for row in inputs):
                by_name = ", or objects by column name" if isinstance(self.model.info, TableInfo) else ""
                raise InputError(f'send rows of numbers: {{"inputs": {example}}}{by_name}')
            return list(inputs)
        for text in (text for row in inputs for text in (row if isinstance(row, list) else [row])):
            check_length(text if isinstance(text, str) else "")
        return [tuple(row) if isinstance(row, list) else (row,) for row in inputs]

    def rows(self, inputs: list[Any]) -> list[dict[str, Any]]:
        """Return the predictions of ``zoo predict``; for a classifier with the probabilities of all labels."""
        classes = self.model.info.classes if isinstance(self.model.task, Classification) else ()
        with self.lock:
            inputs = open_images(inputs) if self.reads == "image" else inputs
            rows = self.model.predict(inputs, batch_size=MAX_INPUTS, top=max(1, len(classes)), on_bad_rows="error")
        for row in rows:
            if "top" in row:
                row["probabilities"] = {entry["label"]: entry["probability"] for entry in row.pop("top")}
        return rows

    # --- texts ---

    async def generate(self, request: Request) -> Response:
        """Answer ``{"prompt": "...", ...}`` with ``{"texts": [...]}``, or for ``"stream": true`` with a stream of plain text.

        Other keys are ``num_samples`` and the options of `zoo.tasks.decoding.Decoding`.
        """
        defaults = {"prompt": None, "num_samples": 1, "stream": False}
        options = defaults | await read_json(request)
        self.model.generative({name: value for name, value in options.items() if name not in defaults})  # checks them
        if not isinstance(options["prompt"], str | None):
            raise InputError('send {"prompt": "some text"}')
        if not isinstance(options["stream"], bool):
            raise InputError("stream: use true or false")
        check_length(options["prompt"] or "")
        for name, limit in LIMITS.items():
            value = options.get(name, 1)
            if type(value) is not int or value > limit:
                raise InputError(f"{name}={value!r:.40}: use a whole number up to {limit}")
        texts = await run_in_threadpool(self.generate_texts, options)
        if options["stream"]:
            return StreamingResponse(self.locked_pieces(texts), media_type="text/plain; charset=utf-8")
        return JSONResponse({"texts": texts})

    def generate_texts(self, options: dict[str, Any]) -> Any:
        """Return a list of texts, or for a stream an iterator over the pieces of a text."""
        with self.lock:
            return self.model.generate(**options)

    def locked_pieces(self, pieces: Iterator[str]) -> Iterator[str]:
        """Yield the pieces of a text, holding the lock while each one is computed."""
        while True:
            with self.lock:
                piece = next(pieces, None)
            if piece is None:
                return
            yield piece


def check_length(text: str) -> None:
    """Raise `InputError` for a text above `MAX_PROMPT`."""
    if len(text) > MAX_PROMPT:
        raise InputError(f"a text has {len(text):,} characters: use up to {MAX_PROMPT:,}")


def limit_body(request: Request) -> Request:
    """Return a request that rejects a body above `MAX_BYTES`; raise 403 for a request from a page of another site.

    Browsers identify the site in Sec-Fetch-Site or, if they are old, in Origin; other programs send neither.
    """
    origin, site = request.headers.get("origin"), request.headers.get("sec-fetch-site")
    is_same = urlsplit(origin or "").netloc == request.headers.get("host") or origin is None
    if not (is_same if site is None else site in ("same-origin", "none")):
        raise HTTPException(403, "requests from pages of other sites are not allowed")
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
        value = json.loads(await limit_body(request).body())
        json.dumps(value, ensure_ascii=False).encode()  # raises for unpaired surrogates
    except (ValueError, RecursionError) as error:
        raise InputError(f"the request is not valid JSON: {one_line(error)}") from error
    if not isinstance(value, dict):
        raise InputError('send a JSON object, such as {"inputs": ["some text"]}')
    return value


def limited(task: GenerativeTask) -> GenerativeTask:
    """Return a copy of a task whose default length and beam are within the limits of a request."""
    task, decoding = copy(task), task.decoding
    length = task.limited_decoding().length
    if length is not None and length > LIMITS["length"]:
        decoding = replace(decoding, length=LIMITS["length"])
    task.decoding = replace(decoding, beam=min(decoding.beam, LIMITS["beam"]))
    return task


def open_images(uploads: list[tuple[str, bytes]]) -> list[Image.Image]:
    """Decode images of at most `MAX_PIXELS` pixels together."""
    images: list[Image.Image] = []
    for name, data in uploads:
        images.append(open_image(data, name, MAX_PIXELS - sum(image.width * image.height for image in images)))
    return images


def open_image(data: bytes, name: str, limit: int = MAX_PIXELS) -> Image.Image:
    """Decode an image of at most `limit` pixels."""
    try:
        image = Image.open(BytesIO(data), formats=("PNG", "JPEG", "GIF", "BMP", "WEBP"))
        width, height = image.size
        if width * height > limit:
            raise InputError(f"{name} has {width} x {height} pixels: send up to {MAX_PIXELS:,} in all images")
        image.load()
    except InputError:
        raise
    except Exception as error:  # decoders raise errors of many classes
        raise InputError(f"{name} cannot be read: send a PNG, JPEG, GIF, BMP or WebP image", code="data") from error
    return image
