"""Publish a model as a release folder with a catalogue entry, or to a repository on the Hub."""

import hashlib
from collections.abc import Mapping, Sequence
from math import isclose
from pathlib import Path
from shlex import quote
from shutil import copyfile
from statistics import fmean, stdev
from tempfile import TemporaryDirectory
from typing import Any

from zoo.atomic import new_folder, write_json, write_text
from zoo.checkpoint.card import card
from zoo.checkpoint.config import ModelConfig, read_config
from zoo.checkpoint.manifest import MEASURED, digest_of, file_record, find, read_json, read_manifest, sealed, verify
from zoo.checkpoint.run_config import FREE, changed_options, read_run_config
from zoo.errors import InputError, one_line, shorten
from zoo.hub import cache
from zoo.hub.sources import FORMAT, NAME, locate, of_catalogue, repository

FACTS = ("backbone", "algebra", "task", "data")
SETTINGS = (*FACTS, "scope", "init", "embedding")


def publish(
    model: str,
    to: str,
    name: str | None = None,
    license: str | None = None,
    repeats: Sequence[str] = (),
    exports: str | Path | None = None,
) -> dict[str, Any]:
    """Publish a model to a folder with a catalogue.json, which any web server can host, or to the Hub (``hf:owner/name``).

    Repeats are runs of the same configuration with other seeds, for the spread of the metrics; ``exports`` is a folder of
    exports of the model, whose sizes and metrics are published too. Returns the ``name`` (by default that of the run folder),
    its ``entry``, the ``catalogue`` (None for the Hub), and the ``source``. Raises `InputError` for an existing release, but
    completes one that was killed before it was in the catalogue.
    """
    folder = find(locate(model))
    name = name or (folder.absolute().parent if folder.name == "model" else folder.absolute()).name
    if not NAME.fullmatch(name) or ":" in name:
        raise InputError(f"{shorten(name)}: --name may contain letters, digits, '-', '_' and '.'")
    if to.startswith("hf:"):
        pushed = push(model, to, license=license, repeats=repeats, exports=exports)
        entry = pushed["facts"] | {"locations": [pushed["source"]]}
        return {"name": name, "entry": entry, "catalogue": None, "source": pushed["source"]}
    known, site = facts_of(folder, repeats, exports), Path(to.removeprefix("file:")).expanduser()
    catalogue = site / "catalogue.json"
    with cache.lock(hashlib.sha256(str(site.resolve()).encode()).hexdigest()):
        listed = {release.name: release.facts for release in of_catalogue(str(catalogue), "")} if catalogue.exists() else {}
        with new_folder(site / name) as part:
            entry = write_release(folder, part, name, license, known) | {"locations": [name]}
            manifest = site / name / "manifest.json"
            is_same = manifest.is_file() and digest_of(manifest) == entry["sha256"]
            if name in listed or ((site / name).exists() and not is_same):
                raise InputError(f"'{site}' already has a release '{name}': choose another --name", code="conflict")
        write_json(catalogue, {"format": FORMAT, "checkpoints": dict(sorted((listed | {name: entry}).items()))})
    return {"name": name, "entry": entry, "catalogue": str(catalogue), "source": str(site / name)}


def push(
    model: str,
    to: str,
    *,
    license: str | None = None,
    private: bool = False,
    revision: str | None = None,
    token: str | None = None,
    repeats: Sequence[str] = (),
    exports: str | Path | None = None,
) -> dict[str, Any]:
    """Upload a model to ``owner/name`` on the Hub, creating the repository and the branch ``revision`` if needed.

    Returns the ``source`` of the upload, with its commit, and its ``facts`` for a catalogue.
    """
    try:
        repo, branch = repository(to, revision)
    except InputError as error:
        if error.code == "conflict":
            raise
        raise InputError(f"{error}; for a folder: zoo publish {quote(str(model))} --to {quote(to)}") from error
    if variable := cache.offline():
        raise InputError(f"cannot push: {variable} disables the network", code="conflict")
    with TemporaryDirectory() as temporary:
        source = repo if branch is None else f"{repo}@{branch}"
        folder = find(locate(model))
        facts = write_release(folder, Path(temporary), source, license, facts_of(folder, repeats, exports))
        commit = _upload(Path(temporary), repo, branch, private, token)
    return {"source": f"hf:{repo}@{commit}", "facts": facts}


def _upload(folder: Path, repo: str, branch: str | None, private: bool, token: str | None) -> str:
    from huggingface_hub import HfApi, constants

    api, message = HfApi(constants.ENDPOINT, token, "hypercomplex-zoo"), "Upload with hypercomplex-zoo"
    try:
        api.create_repo(repo, private=private, exist_ok=True)
        if branch:
            api.create_branch(repo, branch=branch, exist_ok=True)
        return str(api.upload_folder(folder_path=folder, repo_id=repo, revision=branch, commit_message=message).oid)
    except Exception as error:  # huggingface_hub, its HTTP library and the server raise many types
        status = getattr(getattr(error, "response", None), "status_code", None)
        advice = "; log in with: hf auth login, or set HF_TOKEN" if status in (401, 403) else ""
        reason = one_line(error, 200)
        raise InputError(f"cannot push to {repo} at {constants.ENDPOINT}: {reason}{advice}", code="failed") from error


def facts_of(model: Path, repeats: Sequence[str], exports: str | Path | None) -> dict[str, Any]:
    """Return the known facts about the training of a model folder, with the spread over repeats and the exports."""
    known = measured_facts(model)
    if repeats:
        known["spread"] = spread_of([model, *(find(locate(repeat)) for repeat in repeats)])
    if exports is not None:
        known["exports"] = exports_of(read_config(model), known.get("metrics") or {}, Path(exports).expanduser())
    return known


def write_release(model: Path, folder: Path, source: str, license: str | None, known: Mapping[str, Any]) -> dict[str, Any]:
    """Copy a model folder with a new card, in which `zoo.load` loads the source; return its facts for a catalogue."""
    for name in verify(model).keys() - {"README.md"}:
        copyfile(model / name, folder / name)
    config = read_config(model)
    licensed = {"license": license} if license else {}
    write_text(folder / "README.md", card(config, {**known, "versions": config.versions}, source, license))
    records = {path.name: file_record(path) for path in sorted(folder.iterdir())}
    write_json(folder / "manifest.json", sealed({"files": records, **known, **licensed}))
    facts = {key: spec for key in FACTS if (spec := getattr(config, key))}
    facts |= {key: known[key] for key in ("metrics", "spread", "parameters", "exports") if key in known}
    size = sum(record["size"] for record in records.values())
    return facts | licensed | {"bytes": size, "sha256": file_record(folder / "manifest.json")["sha256"]}


def exports_of(config: ModelConfig, metrics: Mapping[str, float | None], folder: Path) -> dict[str, dict[str, float]]:
    """Return ``bytes`` and test metrics of the exports of a model in a folder (NAME/config.json), by their options."""
    rows = dict[str, dict[str, float]]()
    for file in sorted(folder.glob("*/config.json")):
        values = read_json(file)
        before, after = (
            values.get(key) or {} for key in ("float_metrics" if "float_metrics" in values else "metrics", "metrics")
        )
        is_same = before.keys() == metrics.keys() and isinstance(values.get("bytes"), int)
        is_same = is_same and all(isclose(before[key] or 0, metrics[key] or 0, rel_tol=1e-3) for key in before)
        if not is_same or any(values.get(key) != getattr(config, key) for key in FACTS):
            raise InputError(f"{file.parent} is not an export of this model with its test metrics", code="mismatch")
        options = {"format": values["format"], "quantize": values.get("quantize")}
        flags = (
            [f"--{key} {value}" for key, value in options.items() if value]
            + ["--folded"] * bool(values.get("folded"))
            + ["--sparse"] * ("sparse" in values)
        )
        rows[" ".join(flags)] = {"bytes": values["bytes"]} | after
    if not rows:
        raise InputError(f"'{folder}' contains no exports: zoo export RUN --format onnx --to {folder}/onnx", code="missing")
    return rows


def measured_facts(model: Path) -> dict[str, Any]:
    """Return the known facts about the training of a model folder, see `zoo.checkpoint.manifest.MEASURED`."""
    manifest = read_manifest(model)
    return {key: manifest[key] for key in MEASURED if key in manifest}


def spread_of(folders: Sequence[Path]) -> dict[str, Any]:
    """Return the seeds, and mean and standard deviation (n - 1) of the test metrics, of models that differ in the seed.

    All options of run folders, which have a config.yaml, are compared, and the specs of other model folders. A metric that is
    undefined for one of them has no mean.
    """
    configs, rows = [read_config(folder) for folder in folders], [measured_facts(folder) for folder in folders]
    runs = [folder.parent for folder in folders if (folder.parent / "config.yaml").is_file()]
    expected = rows[0].get("metrics") or {}
    for folder, config, row in zip(folders, configs, rows, strict=True):
        metrics, other = row.get("metrics") or {}, {key for key in SETTINGS if getattr(config, key) != getattr(configs[0], key)}
        if folder.parent in runs:
            other |= {name for name, *_ in changed_options(folder.parent, read_run_config(runs[0]), {"seed", *FREE})}
        if other:
            raise InputError(f"{folder} has other values of {', '.join(sorted(other))}: repeats may differ only in the seed")
        if not metrics or metrics.keys() != expected.keys():
            raise InputError(f"{folder} needs test metrics, the same as {folders[0]}")
    seeds = [row.get("seed") for row in rows]
    if len({*seeds}) != len(seeds):
        raise InputError(f"the model and its repeats need different seeds, and have {seeds}")
    columns = {name: [row["metrics"][name] for row in rows] for name in expected}
    mean, std = (
        {name: None if None in column else measure(column) for name, column in columns.items()} for measure in (fmean, stdev)
    )
    return {"seeds": seeds, "mean": mean, "std": std}
