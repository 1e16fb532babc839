"""Pipelines over messages in bulk: audit a ledger, archive, replay, look into dead letters.

Each pipeline has a module of its name with its command: ``quire pipeline run NAME``, or alone, or under spark-submit,
``python -m quire.spark.pipelines.audit``. What it computes are functions from DataFrame to DataFrame beside it.
"""
