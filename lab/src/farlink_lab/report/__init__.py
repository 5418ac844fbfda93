"""The report of a campaign: one page that opens without a network, and its figures for a paper."""

from farlink_lab.report.page import Report, write_report

__all__ = ["Report", "write_report"]
