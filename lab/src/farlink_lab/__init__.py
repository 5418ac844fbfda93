"""Throughput profiles of long dedicated connections: measured, modelled and explained.

`plan` and `schedule` say what to measure; `run` and `movers`, which alone start programs, measure it;
`records` reads what was measured; `model`, `profile`, `shape`, `phases`, `cost` and `health` answer one
question each by pure functions of arrays; `plot` draws the answers and `report` explains them.
"""

__version__ = "0.1.0"
