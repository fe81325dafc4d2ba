"""What the routes work with: one object hung on the application."""

from dataclasses import dataclass, field
from typing import cast

from starlette.requests import Request

from stepwell.server.access import Access, Gate
from stepwell.server.limits import Limits, RateLimiter, Streams
from stepwell.server.metrics import Metrics
from stepwell.server.passwords import PasswordChecks
from stepwell.store.accounts import AccountStore
from stepwell.store.postgres import PostgresBackend
from stepwell.store.postgres_lease import PostgresLease


@dataclass
class Services:
    """Everything a request may need.

    Args:
        backend: the database.
        limits: what the server allows.
    """

    backend: PostgresBackend
    limits: Limits = field(default_factory=Limits)

    def __post_init__(self) -> None:
        self.accounts = AccountStore(self.backend)
        self.gate = Gate(self.accounts)
        self.rates = RateLimiter(self.limits.requests_per_second, self.limits.burst)
        self.logins = RateLimiter(0.2, 10)  # a name: guessing passwords takes for ever
        self.passwords = PasswordChecks()
        self.streams = Streams(self.limits.streams)
        self.leases: dict[str, PostgresLease] = {}  # held for clients whose connection ends here
        self.metrics = Metrics()


def services(request: Request) -> Services:
    """The services of the application that handles a request."""
    return cast("Services", request.app.state.services)


def access(request: Request) -> Access:
    """How the request was admitted; every route with a role has this."""
    return cast("Access", request.state.access)
