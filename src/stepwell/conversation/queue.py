"""The input queue of a conversation: what was sent is written down before it runs, and runs once.

    input_queue            the order of what waits, and why the queue stands still, if it does
    input_queue:<request>  one input: what was sent, the id of its run, whether it waits, was taken or removed

Every input has a request id made by its sender: the same id again gives the same receipt and is not run again. The id
of the run is made when the input is accepted. Whoever dies between starting the run and noting it finds the run under
that id, and does not start another.

After a restart, and after a run that failed or was cancelled, the queue is *held*: it waits until the next input is
sent by hand. That input runs first, then the others in their order.
"""

import hashlib
from typing import Any, NamedTuple

from stepwell.conversation.default_input import InputToSend
from stepwell.conversation.state import Conversation
from stepwell.errors import ConversationBusy, InputQueueFull, InvalidArgument, MessageConflict, QueuedInputNotFound
from stepwell.identifiers import new_id
from stepwell.jsontext import encode
from stepwell.storage.transaction import Transaction
from stepwell.store.file_lock import LockFile, Ticket, offset_of

MAX_WAITING = 100
RESTORED = "restored"

_HEAD = "input_queue"
_EMPTY: dict[str, Any] = {"order": [], "held": None}


class Receipt(NamedTuple):
    """What became of an input: `state` is waiting, taken or removed; `repeated` says that it had been sent before."""

    request_id: str
    run_id: str
    state: str
    repeated: bool = False

    def to_dict(self) -> dict[str, Any]:
        """The receipt as JSON."""
        return self._asdict()


class QueuedInput(NamedTuple):
    """An input that waits."""

    request_id: str
    run_id: str
    input: InputToSend

    def to_dict(self) -> dict[str, Any]:
        """The input as JSON."""
        return {"request_id": self.request_id, "run_id": self.run_id, **self.input.to_dict()}


class InputQueue:
    """The queue of one conversation, kept with it."""

    def __init__(self, conversation: Conversation) -> None:
        self._entries = conversation.entries

    async def add(self, given: InputToSend, request_id: str | None = None) -> Receipt:
        """Accept an input: behind the others, or where the queue is held before them, which lets it go on.

        Args:
            given: the input.
            request_id: made by the sender, 1 to 128 characters; without one nothing can be recognised as repeated.

        Raises:
            InputInvalid: it may not be sent.
            MessageConflict: the request id belongs to another input.
            InputQueueFull: too many wait already.
        """
        request = _checked(request_id if request_id is not None else new_id())
        stored = given.checked().to_dict()
        digest = _digest(given)
        run_id = new_id()

        async def body(tx: Transaction) -> Receipt:
            known = await tx.get_value(_key(request))
            if known is not None:
                if known["digest"] != digest:
                    raise MessageConflict(f"the request id {request!r} belongs to another input", request_id=request)
                return Receipt(request, known["run_id"], known["state"], repeated=True)
            head = await tx.get_value(_HEAD) or _EMPTY
            if len(head["order"]) >= MAX_WAITING:
                raise InputQueueFull(f"{MAX_WAITING} inputs wait already", waiting=MAX_WAITING)
            order = [request, *head["order"]] if head["held"] else [*head["order"], request]
            await tx.set_value(_HEAD, {"order": order, "held": None})
            await tx.set_value(_key(request), {"run_id": run_id, "state": "waiting", "digest": digest, "input": stored})
            return Receipt(request, run_id, "waiting")

        return await self._entries.transact(body)

    async def receipt(self, request_id: str) -> Receipt | None:
        """The receipt of an input that was sent before; None where none was."""
        stored = await self._entries.get_value(_key(_checked(request_id)))
        return None if stored is None else Receipt(request_id, stored["run_id"], stored["state"], repeated=True)

    async def waiting(self) -> list[QueuedInput]:
        """What waits, in order."""
        found = []
        for request in (await self._head())["order"]:
            stored = await self._entries.get_value(_key(request))
            if stored is not None and stored["state"] == "waiting":
                found.append(QueuedInput(request, stored["run_id"], InputToSend.of(stored["input"])))
        return found

    async def held(self) -> str | None:
        """Why the queue stands still: restored, failed or cancelled; None where it does not."""
        reason: str | None = (await self._head())["held"]
        return reason

    async def next(self) -> QueuedInput | None:
        """The input whose turn it is; None where none waits, or the queue is held."""
        if await self.held():
            return None
        waiting = await self.waiting()
        return waiting[0] if waiting else None

    async def hold(self, reason: str) -> bool:
        """Let what waits wait for an input by hand; True if anything waits."""

        async def body(tx: Transaction) -> bool:
            head = await tx.get_value(_HEAD) or _EMPTY
            if not head["order"]:
                return False
            await tx.set_value(_HEAD, {"order": head["order"], "held": reason})
            return True

        return await self._entries.transact(body)

    async def taken(self, request_id: str) -> None:
        """Note that an input's run has begun: it waits no longer."""
        await self._leave(request_id, "taken")

    async def remove(self, request_id: str) -> None:
        """Take out an input that waits.

        Raises:
            QueuedInputNotFound: it does not wait, or no longer.
        """
        await self._leave(request_id, "removed")

    async def move(self, request_id: str, position: int) -> None:
        """Put an input that waits at another place; 1 is the next one to run.

        Raises:
            QueuedInputNotFound: it does not wait. InvalidArgument: there is no such place.
        """

        async def body(tx: Transaction) -> None:
            head = await self._with(tx, request_id)
            if isinstance(position, bool) or not isinstance(position, int) or not 1 <= position <= len(head["order"]):
                raise InvalidArgument(
                    f"there is no place {position!r:.40}: {len(head['order'])} wait", argument="position"
                )
            order = [request for request in head["order"] if request != request_id]
            order.insert(position - 1, request_id)
            await tx.set_value(_HEAD, {**head, "order": order})

        await self._entries.transact(body)

    async def _head(self) -> dict[str, Any]:
        head: dict[str, Any] = await self._entries.get_value(_HEAD) or _EMPTY
        return head

    async def _with(self, tx: Transaction, request_id: str) -> dict[str, Any]:
        head: dict[str, Any] = await tx.get_value(_HEAD) or _EMPTY
        if request_id not in head["order"]:
            raise QueuedInputNotFound(f"no input {request_id!r:.80} waits", request_id=request_id)
        return head

    async def _leave(self, request_id: str, state: str) -> None:
        async def body(tx: Transaction) -> None:
            head = await self._with(tx, request_id)
            order = [request for request in head["order"] if request != request_id]
            await tx.set_value(_HEAD, {"order": order, "held": head["held"] if order else None})
            stored = await tx.get_value(_key(request_id))
            # The receipt stays, what was sent is in the run from here on.
            await tx.set_value(_key(request_id), {**stored, "state": state, "input": None})

        await self._entries.transact(body)


def take_conversation(locks: LockFile, conversation_id: str) -> Ticket:
    """The lock of whoever sends a conversation's inputs; it dies with the process. Give it back with `release`.

    Raises:
        ConversationBusy: another process (or another part of this one) has it.
    """
    ticket = locks.enqueue(offset_of(f"conversation {conversation_id}"), lambda: None)
    if not ticket.granted or not locks.try_take(ticket):
        locks.release(ticket)
        raise ConversationBusy(
            f"the conversation {conversation_id!r:.80} is open in another chat", conversation_id=conversation_id
        )
    return ticket


def _digest(given: InputToSend) -> str:
    """What two sendings of one input have in common: a file that is attached again has another reference."""
    files = [(file.name, file.media_type, file.size, file.kind) for file in given.attachments]
    parts = [given.message, files, dict(given.parameters), given.entrypoint]
    return hashlib.sha256(encode(parts).encode("utf-8", "surrogatepass")).hexdigest()


def _key(request_id: str) -> str:
    return f"{_HEAD}:{request_id}"


def _checked(request_id: Any) -> str:
    if not isinstance(request_id, str) or not 0 < len(request_id) <= 128 or not request_id.isprintable():
        raise InvalidArgument(f"{request_id!r:.60} is not a request id of 1 to 128 characters", argument="request_id")
    return request_id
