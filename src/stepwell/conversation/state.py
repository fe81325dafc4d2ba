"""`ctx.conversation`: one conversation's messages, values and title, as entries of a namespace of its own.

    head                  format, title, times, the next sequence, the number of messages, the context epoch
    message:000000000001  one entry a message, in the order of their sequence
    message_id:<id>       the sequence of a message that was given an id
    value:<key>           one entry a value

Appending touches the head and one new entry, so the hundred-thousandth append costs what the first did. The epoch
is where a later reset starts a new context; every message records the one it was written in.
"""

from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping
from typing import Any, NamedTuple, NoReturn

from stepwell.conversation.messages import check_message, derived_title, normalise_title, render_markdown
from stepwell.errors import ConversationRequired, InvalidArgument, MessageConflict
from stepwell.identifiers import check_conversation_id, iso_time, now_micros
from stepwell.jsontext import decode
from stepwell.storage.entry import Entry
from stepwell.storage.kv import KeyValue
from stepwell.storage.transaction import Transaction
from stepwell.store.backend import Backend
from stepwell.store.entries import NO_SOURCE, Domain, Namespace, Record, Scope, Source

OnTitle = Callable[[str | None], Awaitable[None]]


class AppendPlace(NamedTuple):
    """Where in a run messages without ids are appended, so that a resumed run does not append them again.

    `id` is the same whenever the run comes there; `on_conflict` raises where other messages cannot stand there already.
    """

    id: str
    on_conflict: Callable[[], None]


FORMAT = 1
MAX_REPEATS = 1_000
PAGE = 200
HEAD = "head"
MESSAGE = "message:"
MESSAGE_ID = "message_id:"
VALUE = "value:"


class ConversationSummary(NamedTuple):
    """A conversation without its messages. Times are ISO-8601 UTC; empty before the first write."""

    conversation_id: str
    project_name: str
    title: str | None
    created_at: str
    updated_at: str
    message_count: int
    last_seq: int

    def to_dict(self) -> dict[str, Any]:
        """The summary as JSON, with the title shown where none is set."""
        return self._asdict() | {"shown_title": self.title or derived_title(self.conversation_id)}


class ConversationState(NamedTuple):
    """A whole conversation: all messages, oldest first, and all values."""

    conversation_id: str
    project_name: str
    title: str | None
    created_at: str
    updated_at: str
    messages: list[dict[str, Any]]
    values: dict[str, Any]

    def to_dict(self) -> dict[str, Any]:
        """The state as JSON."""
        return self._asdict()


class Conversation:
    """One conversation of a project.

    Args:
        backend: the host location's backend of the conversation domain.
        project_id, project_name: whose it is.
        conversation_id: any non-empty text of at most 256 characters.
        source: recorded as the last writer.
        on_title: awaited with the new title whenever it changes.
        place: asked before messages without ids are appended; see `AppendPlace`. None appends them as they are.
        workflow: set under the workflow scope model, which keys conversations by workflow name.
    """

    enabled = True

    def __init__(
        self,
        backend: Backend,
        project_id: str | None,
        project_name: str,
        conversation_id: str,
        *,
        source: Source = NO_SOURCE,
        on_title: OnTitle | None = None,
        workflow: str | None = None,
        place: Callable[[], AppendPlace | None] | None = None,
    ) -> None:
        self.conversation_id = check_conversation_id(conversation_id)
        self._project_name = project_name
        self._on_title = on_title
        self._place = place
        namespace = Namespace(project_id, Domain.CONVERSATION, Scope.CONVERSATION, workflow, conversation_id)
        self.entries = KeyValue(backend, namespace, source=source)

    def at(self, backend: Backend) -> "Conversation":
        """The same conversation at another backend, where nobody is told of a new title."""
        namespace = self.entries.namespace
        return Conversation(
            backend, namespace.project_id, self._project_name, self.conversation_id, source=self.entries.source,
            workflow=namespace.workflow, place=self._place,
        )  # fmt: skip

    async def summary(self) -> ConversationSummary:
        """Title, times and number of messages."""
        return self._summary(await self.entries.get_entry(HEAD))

    async def get_value(self, key: str | None = None, default: Any = None) -> Any:
        """The whole conversation as a `ConversationState`, or with `key` one of its values.

        Reading all messages costs as much as there are: use `messages()` for the newest ones.
        """
        if key is not None:
            return await self.entries.get_value(f"{VALUE}{key}", default)
        head = self._summary(await self.entries.get_entry(HEAD))
        messages = [message async for message in self.all_messages()]
        values = {entry.key.removeprefix(VALUE): entry.value async for entry in self.entries.scan(VALUE)}
        return ConversationState(
            head.conversation_id, head.project_name, head.title, head.created_at, head.updated_at, messages, values
        )

    async def append_message(self, message: Mapping[str, Any]) -> ConversationSummary:
        """Append one message and return the summary after it.

        A message with an `id` that the conversation already has is taken for the same one sent again: nothing is
        written if its content is the same. The body of a workflow, outside of nodes, appends a message once, also when
        the run is resumed: a message without an id gets one from the run and the place.

        Raises:
            MessageInvalid: a field is missing or wrong.
            MessageConflict: the id belongs to a message with other content.
        """
        return await self.append_messages((message,))

    async def append_messages(self, messages: Iterable[Mapping[str, Any]]) -> ConversationSummary:
        """Append several messages, all of them or none: a tool's call never stands there without its result.

        Raises:
            MessageInvalid, MessageConflict: as `append_message`; nothing was written.
        """
        checked = [check_message(message) for message in messages]
        place = self._place() if self._place is not None and any("id" not in each for each in checked) else None
        if place is None:
            await self._append_all(checked)
            return await self.summary()
        for attempt in range(1, MAX_REPEATS):
            own = place.id if attempt == 1 else f"{place.id}~{attempt}"
            named = [each if "id" in each else {**each, "id": f"{own}/{n}"} for n, each in enumerate(checked, 1)]
            try:
                await self._append_all(named)
            except MessageConflict as conflict:
                if not str(conflict.data["id"]).startswith(f"{own}/"):
                    raise
                place.on_conflict()
                continue
            return await self.summary()
        raise MessageConflict(f"the messages of {place.id!r:.200} stand in the conversation {MAX_REPEATS} times")

    async def _append_all(self, checked: Iterable[dict[str, Any]]) -> None:
        async def body(tx: Transaction) -> None:
            for message in checked:
                await _append(tx, message)

        await self.entries.transact(body)

    async def messages(self, limit: int = 20, before: int | None = None) -> list[dict[str, Any]]:
        """The newest `limit` messages, oldest of them first; with `before` those just before that `seq`.

        Costs the same at any length. Each message has its `seq` and `created_at` besides what was stored.
        """
        if isinstance(limit, bool) or not isinstance(limit, int) or limit < 1:
            raise InvalidArgument(f"limit is {limit!r:.40}: it must be a whole number from 1", argument="limit")
        after = None if before is None else message_key(before)
        newest: list[Record] = []
        while len(newest) < limit:
            size = min(limit - len(newest), PAGE)
            page = await self.entries.records(MESSAGE, after=after, limit=size, reverse=True)
            newest += page
            if len(page) < size:
                break
            after = page[-1].key
        return [_message(record) for record in reversed(newest)]

    async def all_messages(self) -> AsyncIterator[dict[str, Any]]:
        """Every message, oldest first, page by page."""
        after: str | None = None
        while True:
            page = await self.entries.records(MESSAGE, after=after, limit=PAGE)
            for record in page:
                yield _message(record)
            if len(page) < PAGE:
                return
            after = page[-1].key

    async def set_value(self, key: str, value: Any) -> None:
        """Store a value with the conversation."""

        async def body(tx: Transaction) -> None:
            if await tx.get_value(HEAD) is None:
                await tx.set_value(HEAD, _new_head())
            await tx.set_value(f"{VALUE}{key}", value)

        await self.entries.transact(body)

    async def delete_value(self, key: str) -> bool:
        """Remove a value; True if it was there."""
        return await self.entries.delete_value(f"{VALUE}{key}")

    async def set_title(self, title: str | None) -> str | None:
        """Set the title (normalised to one line of at most 200 characters; "" clears it) and return it."""
        normalised = normalise_title(title)

        async def body(tx: Transaction) -> bool:
            head = await tx.get_value(HEAD) or _new_head()
            if head["title"] == normalised:
                return False
            await tx.set_value(HEAD, head | {"title": normalised})
            return True

        if await self.entries.transact(body) and self._on_title is not None:
            await self._on_title(normalised)
        return normalised

    def render(self, messages: Iterable[Mapping[str, Any]]) -> str:
        """Messages as a Markdown transcript."""
        return render_markdown(messages)

    def _summary(self, head: Entry | None) -> ConversationSummary:
        if head is None:
            return ConversationSummary(self.conversation_id, self._project_name, None, "", "", 0, 0)
        return ConversationSummary(
            self.conversation_id,
            self._project_name,
            head.value["title"],
            head.value["created_at"],
            head.updated_at,
            head.value["count"],
            head.value["next"] - 1,
        )


class NoConversation:
    """`ctx.conversation` where there is none: `set_title` does nothing, everything else raises.

    Raises:
        ConversationRequired
    """

    enabled = False
    conversation_id = None

    async def set_title(self, title: str | None) -> str | None:
        """A title is a hint for a screen: without a conversation it is ignored."""
        return normalise_title(title)

    def _refuse(self) -> NoReturn:
        raise ConversationRequired("this project has no conversation")

    async def _call(self, *_: Any, **__: Any) -> Any:
        self._refuse()

    summary = get_value = append_message = append_messages = messages = set_value = delete_value = _call

    def all_messages(self) -> AsyncIterator[dict[str, Any]]:
        """Refuse at once."""
        self._refuse()


async def _append(tx: Transaction, checked: dict[str, Any]) -> None:
    head = await tx.get_value(HEAD) or _new_head()
    message_id = checked.get("id")
    if message_id is not None:
        known = await tx.get_value(f"{MESSAGE_ID}{message_id}")
        if known is not None:
            stored = await tx.get_value(message_key(known))
            if {name: part for name, part in stored.items() if name != "epoch"} == checked:
                return
            raise MessageConflict(f"the message id {message_id!r} belongs to another message", id=message_id, seq=known)
        await tx.set_value(f"{MESSAGE_ID}{message_id}", head["next"])
    stored = checked | {"epoch": head["epoch"]} if head["epoch"] else checked
    await tx.set_value(message_key(head["next"]), stored)
    await tx.set_value(HEAD, head | {"next": head["next"] + 1, "count": head["count"] + 1})


def message_key(seq: int) -> str:
    """The entry key of a message; sorts by sequence up to 999,999,999,999."""
    return f"{MESSAGE}{seq:012d}"


def _new_head() -> dict[str, Any]:
    return {
        "format": FORMAT, "title": None, "created_at": iso_time(now_micros()), "next": 1, "count": 0, "epoch": 0
    }  # fmt: skip


def _message(record: Record) -> dict[str, Any]:
    seq = int(record.key.removeprefix(MESSAGE))
    try:
        stored = decode(record.text)
        if not isinstance(stored, dict) or "role" not in stored:
            raise ValueError("not a message")  # noqa: TRY301
    except ValueError:
        # Never skipped: a hole that nobody sees is worse than a placeholder.
        stored = {"role": "system", "content": "[this message is damaged and cannot be read]", "damaged": True}
    return {**stored, "seq": seq, "created_at": iso_time(record.created_at)}
