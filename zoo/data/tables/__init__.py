"""Tables of numbers and categories."""

from zoo.data.tables.module import TableData, table

__all__ = ["TableData", "table"]
