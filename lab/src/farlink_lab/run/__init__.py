"""Carrying out plans: the only part of the lab, beside `movers`, that reaches outside."""
