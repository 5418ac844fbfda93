"""Figures of what was found, for pages (plotly) and papers (matplotlib). Nothing here computes."""
