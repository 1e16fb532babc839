"""Costs that are easy to calculate with, for tests of the model."""

from benchmarks.scaling.costs import Check, Costs, Disk, Idle, Pace, Work

COSTS = Costs(
    measured="2026-01-01",
    machine="a machine",
    versions="a version",
    fit={"broker": 0.05},
    broker=Work(sent=10e-6, taken=20e-6, commits=100e-6, trips=5e-6),
    relay=Work(sent=10e-6, taken=10e-6),
    database=Work(sent=2e-6, taken=1e-6, commits=100e-6),
    log=Work(sent=100, taken=50, sent_bytes=1, commits=500),
    client=Work(sent=5e-6, taken=5e-6),
    wire=Work(sent=100, taken=100, sent_bytes=1, taken_bytes=1),
    link=Work(sent=100, taken=100, sent_bytes=1, taken_bytes=1),
    acknowledge=2e-6,
    pace=Pace(commit=1e-3, record=10e-6, most=200),
    idle=Idle(0.01, 0.001, 10e-6, 5, 50e6, 10_000, 2_000, 1_000),
    disk=Disk(300e6, 5_000),
    checks=[Check("a load", 2, 0.0, (1000, 800), (60e-6, 50e-6), (5e-6, 4e-6), (1200, 1200))],
)
