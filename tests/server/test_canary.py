"""A planted secret is looked for everywhere the server speaks: logs, errors, events, exports, metrics, the database."""

import json
import subprocess
import sys
from pathlib import Path

import httpx
import psycopg

from tests.databases import Database

PROJECT = "01936d3f-6a00-7000-8000-000000000001"
CANARY = "sk-canary-7Gq0Zt1nYwL5bVx8RkDfUe2HsJ4PcMa9"
PASSWORD = "correct canary battery staple"


def test_a_secret_is_nowhere_but_where_it_was_put(tmp_path: Path):
    database = Database()
    log = tmp_path / "log"
    process = subprocess.Popen(
        [sys.executable, "-m", "stepwell", "server", "--port", "0", "--json", "--log-level", "debug"],
        env={"STEPWELL_DATABASE_URL": database.dsn, "STEPWELL_HOME": str(tmp_path), "PATH": ""},
        stdout=subprocess.PIPE, stderr=log.open("w"), text=True,
    )  # fmt: skip
    try:
        assert process.stdout is not None
        started = json.loads(process.stdout.readline())
        seen = _use(started["url"], started["admin_key"])
    finally:
        process.terminate()
        assert process.wait(20) == 0
    spoken = log.read_text() + "\n".join(seen)
    for secret in (CANARY, PASSWORD, started["admin_key"]):
        assert secret not in spoken
    with psycopg.connect(database.dsn) as connection:
        for table in ("account", "token", "project", "membership", "commit_log", "namespace"):
            stored = str(connection.execute(f"SELECT * FROM stepwell.{table}").fetchall())
            for secret in (CANARY, PASSWORD, started["admin_key"]):
                assert secret not in stored, table
    database.drop()


def _use(url: str, key: str) -> list[str]:
    """Everything that is answered to requests that carry the secret in every place they have, but where it is asked."""
    seen = []
    auth = {"Authorization": f"Bearer {key}"}
    with httpx.Client(base_url=f"{url}/api/v1", headers=auth, timeout=30) as admin:
        admin.put(f"/projects/{PROJECT}", json={"name": "canary"})
        entries = f"/projects/{PROJECT}/kv/project/entries"
        stored = admin.put(f"{entries}/token", json={"key": CANARY})
        seen += [stored.text, str(stored.headers)]
        with admin.stream("GET", f"/projects/{PROJECT}/kv/project/watch", params={"since": 0}) as events:
            for line in events.iter_lines():
                seen.append(line)
                if line.startswith("data:"):
                    break
        for answer in (
            admin.put(f"{entries}/bad", content=f'{{"a": NaN, "b": "{CANARY}"}}'),
            admin.put(f"{entries}/bad", content=f'{{"{CANARY}": 1, "{CANARY}": 2'),
            admin.put(f"{entries}/token", json=CANARY, headers={"If-Match": '"99"'}),
            admin.post(f"/projects/{PROJECT}/kv/project/commit", json={"writes": [{"key": "k", "valeu": CANARY}]}),
            admin.post("/users", json={"name": "pat", "password": PASSWORD}),
            admin.post("/users", json={"name": "p t", "password": PASSWORD}),
            admin.post("/login", json={"name": "pat", "password": PASSWORD, "x": PASSWORD}),
            admin.get("/me", headers={"Authorization": f"Bearer {CANARY}"}),
            admin.get("/users", headers={"Authorization": f"Basic {CANARY}"}),
            admin.get("/tokens", params={"everyone": True}),
            admin.get("/users"),
            httpx.get(f"{url}/metrics"),
            httpx.get(f"{url}/readyz", headers={"Cookie": CANARY, "X-Request-Id": CANARY + " x"}),
        ):
            seen += [answer.text, str(answer.headers)]
        for shown in ("entries", "statistics", "export?format=csv", "export?format=ndjson"):
            # Its values are the project's own: whoever may read them sees them there.
            seen.append(admin.get(f"/projects/{PROJECT}/workbench/{shown}").text.replace(CANARY, ""))
    return seen
