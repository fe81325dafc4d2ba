"""A host whose projects have model providers at a scripted server."""

from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from stepwell import Entrypoint, Executor, Host, TokenUsage, load_settings
from stepwell.project.loader import Project
from tests.scripted_model_server import ScriptedServer
from tests.unit.conftest import PROJECT_ID, Bench, project_of

CANARY = "canary-51f2c7d09ab4-key"
USAGE = {"input": 100, "output": 20, "reasoning": 5, "cache_read": 30}
TYPES = ("openai", "openai-chat", "openai-compatible", "anthropic", "google")
TELLS_EARLY = ("anthropic", "google")
"""Those that tell the tokens of the prompt at the start of a stream."""


def providers_at(server: ScriptedServer, **more: Any) -> dict[str, Any]:
    """One provider of each type, named after it; `default` is openai-compatible."""
    made = {}
    for kind in TYPES:
        url = server.url if kind in TELLS_EARLY else f"{server.url}/v1"
        made[kind] = {"type": kind, "model": "scripted", "base-url": url, "max-wait": 2, **more}
    return {**made, "default": made["openai-compatible"]}


class AgentBench(Bench):
    """Runs workflows whose tokens are counted; `providers` is the manifest's table."""

    providers: dict[str, Any]

    def project(self, made: Any) -> Project:
        """A project around a workflow, with the providers."""
        if not isinstance(made, Executor):
            made = Executor(entrypoints=[Entrypoint("main", made, token_usage=TokenUsage(enabled=True))])
        project = project_of(made, self.folder)
        return Project(project.manifest._replace(providers=self.providers), project.executor)

    async def start(self, made: Any, manifest: Any = None, **options: Any) -> Any:
        self.events.clear()
        return await self.host.start(self.project(made), on_event=self.events.append, **({"input": {}} | options))

    async def resume(self, made: Any, run_id: str) -> Any:
        """Resume a run, in this process or in another host; returns its report."""
        self.events.clear()
        return await (await self.host.resume(self.project(made), run_id, on_event=self.events.append)).report()

    async def totals(self) -> Any:
        """What the project's total says."""
        backend = self.host.local_stores
        from stepwell.storage.declaration import DataStorage, ScopeModel
        from stepwell.storage.location import Storage
        from stepwell.store.entries import NO_SOURCE

        storage = Storage(
            local=backend, server=None, project_id=PROJECT_ID, workflow_name="", conversation_id=None,
            data_storage=DataStorage.LOCAL, scope_model=ScopeModel.PROJECT, source=NO_SOURCE,
        )  # fmt: skip
        return await storage.host.kv.get_value("tokenUsage.total")


@pytest.fixture
def serve() -> Any:
    """Start scripted servers that end with the test."""
    servers: list[ScriptedServer] = []

    def start(*script: dict[str, Any]) -> ScriptedServer:
        server = ScriptedServer(list(script)).__enter__()
        servers.append(server)
        return server

    yield start
    for server in servers:
        server.__exit__()


@pytest.fixture
async def bench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[AgentBench]:
    """A host with its data in a folder of the test, and keys in the environment."""
    for name in ("OPENAI_API_KEY", "ANTHROPIC_API_KEY", "GOOGLE_API_KEY"):
        monkeypatch.setenv(name, CANARY)
    async with Host(load_settings()) as host:
        made = AgentBench(host, tmp_path)
        made.providers = {}
        yield made


MakeServer = Callable[..., ScriptedServer]
