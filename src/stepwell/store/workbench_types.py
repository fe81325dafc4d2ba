"""What the workbench is asked, and what it answers."""

from typing import NamedTuple

from stepwell.store.entries import Domain, Scope, Source


class Filters(NamedTuple):
    """Which entries; None leaves a part open. Times are microseconds since 1970: from `since`, before `until`.

    `project_id` is the empty string for the namespaces of no project. `workflow` is the namespace's, or that of the
    last writer. `run_id` and `source_conversation_id` are those of the last writer.
    """

    project_id: str | None = None
    domain: Domain | None = None
    scope: Scope | None = None
    conversation_id: str | None = None
    workflow: str | None = None
    key_prefix: str | None = None
    key_contains: str | None = None
    value_contains: str | None = None
    type: str | None = None
    has_run: bool | None = None
    run_id: str | None = None
    source_conversation_id: str | None = None
    since: int | None = None
    until: int | None = None


class Item(NamedTuple):
    """An entry. `shown` is its JSON text, or the first characters of it."""

    project_id: str | None
    domain: str
    scope: str
    workflow: str | None
    conversation_id: str | None
    namespace_id: int
    key: str
    type: str
    bytes: int
    revision: int
    created_at: int
    updated_at: int
    source: Source
    shown: str


class Sampled(NamedTuple):
    """How many rows were looked at, of how many."""

    rows: int
    of: int


Position = tuple[int, int, str]  # time, namespace, key; the time is 0 in order of keys


class Page(NamedTuple):
    """Some entries.

    `after` is where to go on; None at the end. `complete` is False if the search stopped at its bound before the page
    was full; `scanned` is the number of rows it went through. `sampled` is set if entries were left out.
    """

    items: list[Item]
    after: Position | None
    complete: bool
    scanned: int
    sampled: Sampled | None = None


class HotKey(NamedTuple):
    """A key with the number of commits that changed it."""

    project_id: str | None
    domain: str
    scope: str
    workflow: str | None
    conversation_id: str | None
    key: str
    commits: int
    at: int


class HotKeys(NamedTuple):
    """The keys most often written; `complete` is False if more commits were in the window than were counted."""

    commits: int
    complete: bool
    items: list[HotKey]


class Figures(NamedTuple):
    """Figures of the rows looked at. Sizes are bytes of JSON text; `types` maps to rows and bytes."""

    rows: int
    total_bytes: int
    max_bytes: int
    p50_bytes: int
    p95_bytes: int
    with_run: int
    with_conversation: int
    with_workflow: int
    types: dict[str, tuple[int, int]]


class Statistics(NamedTuple):
    """`scopes` are domain, scope, namespaces and entries: always exact, and so is `entries`."""

    entries: int
    scopes: list[tuple[str, str, int, int]]
    figures: Figures
    sampled: Sampled | None
    hot: HotKeys
    recent: Page
