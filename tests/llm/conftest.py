"""Scripted providers for every test here."""

from tests.agents import bench, serve  # noqa: F401
