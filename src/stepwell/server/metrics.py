"""Figures for Prometheus, of few labels: never an id of a user, project or conversation."""

from bisect import bisect_left

_METHODS = frozenset({"GET", "PUT", "POST", "PATCH", "DELETE", "HEAD", "OPTIONS"})
_BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)


class Metrics:
    """Counts of requests by route and status, and how long they took."""

    def __init__(self) -> None:
        self._requests: dict[tuple[str, str, int], int] = {}
        self._seconds: dict[str, list[int]] = {}
        self._total: dict[str, float] = {}

    def count(self, method: str, route: str, status: int, seconds: float) -> None:
        """One request was answered.

        Args:
            method, route: the route's pattern, not the address asked for.
            status: HTTP status.
            seconds: until the answer began.
        """
        key = (method if method in _METHODS else "other", route, status)  # anybody can make methods up
        self._requests[key] = self._requests.get(key, 0) + 1
        counts = self._seconds.setdefault(route, [0] * (len(_BUCKETS) + 1))
        counts[bisect_left(_BUCKETS, seconds)] += 1
        self._total[route] = self._total.get(route, 0.0) + seconds

    def text(self, gauges: dict[str, float]) -> str:
        """Everything in Prometheus' text format."""
        lines = ["# HELP stepwell_requests_total Answered requests.", "# TYPE stepwell_requests_total counter"]
        for (method, route, status), number in sorted(self._requests.items()):
            lines.append(f'stepwell_requests_total{{method="{method}",route="{route}",status="{status}"}} {number}')
        lines += ["# HELP stepwell_request_seconds Time to answer.", "# TYPE stepwell_request_seconds histogram"]
        for route, counts in sorted(self._seconds.items()):
            running = 0
            for bound, number in zip((*_BUCKETS, "+Inf"), counts, strict=True):
                running += number
                lines.append(f'stepwell_request_seconds_bucket{{route="{route}",le="{bound}"}} {running}')
            lines.append(f'stepwell_request_seconds_sum{{route="{route}"}} {self._total[route]:.6f}')
            lines.append(f'stepwell_request_seconds_count{{route="{route}"}} {running}')
        for name, value in gauges.items():
            lines += [f"# TYPE stepwell_{name} gauge", f"stepwell_{name} {value:g}"]
        return "\n".join(lines) + "\n"
