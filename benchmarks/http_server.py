"""A server to be measured: the API, and beside it a route that does nothing.

python benchmarks/http_server.py DATABASE_URL      prints {"port": …, "key": …}
"""

import asyncio
import json
import socket
import sys

import uvicorn
from starlette.responses import Response

from stepwell.server.app import create_app
from stepwell.server.limits import Limits
from stepwell.server.serve import first_administrator, uvicorn_config
from stepwell.server.services import Services
from stepwell.store.accounts import AccountStore
from stepwell.store.postgres import PostgresBackend


async def main(dsn: str) -> None:
    """Serve until the process is ended."""
    backend = PostgresBackend(dsn)
    await backend.prepare()
    key = await first_administrator(AccountStore(backend))
    app = create_app(Services(backend, Limits(requests_per_second=1e6, burst=10**6)))

    async def empty() -> Response:
        return Response(b"{}", media_type="application/json")

    app.add_api_route("/empty", empty)
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    listener.bind(("127.0.0.1", 0))
    listener.listen(1_024)
    print(json.dumps({"port": listener.getsockname()[1], "key": key}), flush=True)
    await uvicorn.Server(uvicorn_config(app)).serve([listener])


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
