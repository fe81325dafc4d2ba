"""What a project declares about its storage."""

from enum import StrEnum


class DataStorage(StrEnum):
    """Which locations a project may address: `data-storage` in its manifest."""

    LOCAL = "local"
    SERVER = "server"
    BOTH = "both"


class ScopeModel(StrEnum):
    """`scope-model`: `project` has the scopes project and conversation, `workflow` is the older surface."""

    PROJECT = "project"
    WORKFLOW = "workflow"
