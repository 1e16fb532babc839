"""Pipelines: each module has its command, for ``quire pipeline run NAME`` or as a program under spark-submit."""
