"""Secrets from the environment, by name: they never stand in a workflow and never travel along an edge."""

import os
import re
from typing import Annotated, Any

from pydantic import BaseModel

from stepwell.errors import NodeRefused
from stepwell.graph.node_context import NodeContext
from stepwell.graph.ports import without_effect
from stepwell.graph.registry import node_type

PREFIX = "STEPWELL_CREDENTIALS__"
_WHERE = "credentials are read from the environment of the process"


def variable_of(name: str) -> str:
    """The environment variable that holds a credential."""
    return PREFIX + re.sub(r"[^A-Z0-9]+", "_", name.upper()).strip("_")


@node_type("utils/credential", title="Credentials")
class Credential:
    """Checks that credentials are there and hands their names on: `{"API_KEY": "github"}` binds a name to one of them.

    The nodes that use a credential (`tools/http` by `credential_id`) read it themselves; no value is emitted.
    """

    class Inputs(BaseModel):
        bindings: dict[str, Any] = {}
        context_name: Annotated[str | None, without_effect(_WHERE)] = None
        strict: bool = True
        user_id: Annotated[str | None, without_effect(_WHERE)] = None

    class Outputs(BaseModel):
        env_vars: dict[str, Any]
        missing_bindings: list[Any]
        resolved_count: int

    async def run(self, inputs: Any, ctx: NodeContext) -> dict[str, Any]:
        variables = {str(name): variable_of(str(credential)) for name, credential in inputs.bindings.items()}
        missing = [name for name, variable in variables.items() if not os.environ.get(variable)]
        if missing and inputs.strict:
            raise NodeRefused(
                f"no value is set for {', '.join(missing)}",
                hint=f"set {', '.join(variables[name] for name in missing)}", missing=missing,
            )  # fmt: skip
        found = {name: variable for name, variable in variables.items() if name not in missing}
        return {"env_vars": found, "missing_bindings": missing, "resolved_count": len(found)}
