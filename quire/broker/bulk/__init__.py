"""Many messages at once from a bulk writer such as Spark: rows, and writes that are staged first."""
