"""Runs: start, record, resume, cancel, report."""
