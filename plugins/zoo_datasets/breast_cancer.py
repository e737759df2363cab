"""The embedded table."""

import hashlib
from typing import Any

from zoo.data.options import options_of
from zoo.data.tables.columns import Column, RawTable
from zoo.data.tables.module import TableData
from zoo.errors import InputError

SHA256 = "25e2eb7b7a8745b1bde5ba18bc4969983d2e2f403291ecd5bde4a29ef30c3859"


@options_of(TableData, "kind", "categories")
def breast_cancer(**options: Any) -> TableData:
    """Measurements of cell nuclei, benign or malignant, from scikit-learn; needs no network.

    569 rows of 30 numbers (Wolberg, Mangasarian, Street and Street 1993, UCI), 461 / 51 / 57.

    Args:
        options: See `TableData`.
    """
    return TableData(_read, "diagnosis", kind="classification", **options)


def _read() -> RawTable:
    from sklearn.datasets import load_breast_cancer

    bunch = load_breast_cancer()
    sha256 = hashlib.sha256(bunch.data.tobytes() + bunch.target.astype("int64").tobytes()).hexdigest()
    if sha256 != SHA256:
        message = f"breast_cancer: the installed scikit-learn has other data (SHA-256 {sha256[:12]}, expected {SHA256[:12]})"
        raise InputError(message, code="mismatch")
    names = map(str, bunch.feature_names)
    columns = {name: Column.of_numbers(name, bunch.data[:, i]) for i, name in enumerate(names)}
    columns["diagnosis"] = target = Column("diagnosis")
    for label in bunch.target:
        target.add(str(bunch.target_names[label]))
    return RawTable(columns, {"train": len(bunch.target)}, "breast_cancer")
