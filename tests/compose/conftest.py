"""The runtime's own fixtures."""

from tests.unit.conftest import bench as bench
