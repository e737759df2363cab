"""The results of all measurements of time and memory as flat tables, for the CSV files that docs/speed.md links to."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from zoo_reports.page import Table

from benchmarks.machine import read, short
from benchmarks.speed import attention_products, convnets, fused, gpu, growth, memory, papers_times, peers, plan, threads

Row = Mapping[str, Any]


def flat(rows: Iterable[Row]) -> Table:
    """Return records as a table; the columns of a nested record are named OUTER.INNER."""
    records = [dict(columns(row)) for row in rows]
    head = list(dict.fromkeys(name for record in records for name in record))
    return Table("", head, [[str(record.get(name, "")) for name in head] for record in records])


def columns(row: Row, prefix: str = "") -> Iterator[tuple[str, object]]:
    """Yield the names and values of a record."""
    for name, value in row.items():
        if isinstance(value, Mapping):
            yield from columns(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", "" if value is None else short(value) if name == "commit" else value


def made(results: Row) -> dict[str, Any]:
    """Return where and when results were measured."""
    where = results["machine"]
    return {name: where[name] for name in ("date", "processor", "torch")} | {"commit": results["commit"]}


def cpu_rows() -> Iterator[Row]:
    """Yield the cases of `benchmarks.speed.fused`."""
    for instructions, rows in read(fused.RESULTS).items():
        for name, row in rows.items():
            yield {"section": row["section"], "case": name.removeprefix(f"{row['section']}: "), "cpu": instructions} | row


def gpu_rows() -> Iterator[Row]:
    """Yield the cases of `benchmarks.speed.gpu`, those of earlier kernels last; ratios are to the first network of a case."""
    results = read(gpu.RESULTS)
    earlier = [
        row | {"machine": results["speed"]["machine"], "commit": results["speed"]["commit"]} for row in results["speed"]["rows"]
    ]
    for row in (*results.get("table", []), *earlier):
        about = {"device": row["machine"]["device"], "date": row["machine"]["date"], "commit": row["commit"]}
        for name, call in row.get("calls", {}).items():
            yield {"case": row["case"], "network": name} | call | {"goal": row.get("goals", {}).get(name)} | about


def memory_rows() -> Iterator[Row]:
    """Yield the bytes of `benchmarks.speed.memory`."""
    results = read(memory.RESULTS)
    for work, rows in results["works"].items():
        for algebra, row in rows.items():
            kernels = " ".join(f"{name} {count}" for name, count in row["kernels"].items())
            yield {"network": memory.WORKS[work], "algebra": algebra} | row | {"kernels": kernels} | made(results)


def growth_rows() -> Iterator[Row]:
    """Yield the points of `benchmarks.speed.growth`."""
    for kind, quantities in read(growth.RESULTS).items():
        for unit, measured in quantities.items():
            for algebra, values in measured["points"].items():
                about = {"network": measured["network"], "varied": kind, "algebra": algebra}
                for size, value in zip(growth.SIZES[kind], values, strict=True):
                    yield about | {"size": size, unit: value, "exponent": measured["exponents"][algebra]} | made(measured)


def peer_rows() -> Iterator[Row]:
    """Yield the layers of `benchmarks.speed.peers`."""
    results = read(peers.RESULTS)
    for shape in results["shapes"]:
        size = dict(zip(("rows", "inputs", "outputs"), shape["shape"], strict=True))
        for row in shape["rows"]:
            yield size | row | made(results)


def paper_rows() -> Iterator[Row]:
    """Yield the times of `benchmarks.speed.papers_times`; ratios are to the first network."""
    results = read(papers_times.RESULTS)
    translation, positions = results["translation"], results["positions"]
    for work in ("training", "decoding"):
        for algebra, row in translation[work].items():
            count = translation["parameters"][algebra]
            published = papers_times.NETWORKS[algebra][work == "decoding"]
            about = {"paper": "Zhang et al. 2021, Table 3", "work": work, "network": algebra, "parameters": count}
            yield about | row | {"published seconds": published} | made(translation)
    for part, title in (("training", "training"), ("places", "training, order against vanilla")):
        for net, kinds in positions[part].items():
            for kind, row in kinds.items():
                about = {"paper": "Wang et al. 2020, Figure 2", "work": title, "network": f"{net}, {kind}"}
                yield about | {"parameters": positions["parameters"][net][kind]} | row | made(positions)


def plan_rows() -> Iterator[Row]:
    """Yield the planned kernels of `benchmarks.speed.plan`."""
    for instructions, results in read(plan.RESULTS).items():
        yield from ({"cpu": instructions} | row for row in results["rows"])


def thread_rows() -> Iterator[Row]:
    """Yield the speeds of `benchmarks.speed.threads`."""
    results = read(threads.RESULTS)
    for situation, policies in results["speeds"].items():
        for policy, row in policies.items():
            yield {"situation": threads.TITLES[situation], "threads": policy} | row


def tables() -> dict[str, Table]:
    """Return all tables by the names of their CSV files."""
    others = {"attention": attention_products, "convnets": convnets}
    rows: dict[str, Iterable[Row]] = {name: read(module.RESULTS)["rows"] for name, module in others.items()}
    rows |= {"cpu": cpu_rows(), "gpu": gpu_rows(), "memory": memory_rows(), "growth": growth_rows(), "peers": peer_rows()}
    rows |= {"plan": plan_rows(), "threads": thread_rows(), "papers_times": paper_rows()}
    return {f"{name}.csv": flat(found) for name, found in rows.items()}
