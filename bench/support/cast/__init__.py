"""The rows of bench/cast.md: who casts, over which hosts, and what is measured of it."""
