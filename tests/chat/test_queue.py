"""The input queue: exactly once by request id, in order, held after a restart, one writer a conversation."""

import asyncio
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from stepwell.conversation.default_input import InputToSend
from stepwell.conversation.queue import MAX_WAITING, RESTORED, InputQueue, take_conversation
from stepwell.conversation.state import Conversation
from stepwell.errors import (
    ConversationBusy,
    InputInvalid,
    InputQueueFull,
    InvalidArgument,
    MessageConflict,
    QueuedInputNotFound,
)
from stepwell.store.file_lock import LockFile
from stepwell.store.memory import MemoryBackend
from stepwell.store.sqlite_backend import SqliteBackend
from tests.unit.conftest import PROJECT_ID


@pytest.fixture(params=["memory", "sqlite"])
async def conversation(request, tmp_path: Path):
    backend = MemoryBackend() if request.param == "memory" else SqliteBackend(tmp_path / "x.sqlite")
    yield Conversation(backend, PROJECT_ID, "made", "c1")
    await backend.close()


@pytest.fixture
def queue(conversation) -> InputQueue:
    return InputQueue(conversation)


async def texts(queue: InputQueue) -> list[str]:
    return [item.input.message for item in await queue.waiting()]


async def test_inputs_wait_in_order_and_leave_when_their_run_began(queue, conversation):
    receipts = [await queue.add(InputToSend(text), f"r-{text}") for text in "abc"]
    assert len({receipt.run_id for receipt in receipts}) == 3
    first = await queue.next()
    assert (first.input.message, first.run_id) == ("a", receipts[0].run_id)
    assert await queue.next() == first  # looking takes nothing
    await queue.taken("r-a")
    assert await texts(InputQueue(conversation)) == ["b", "c"]


async def test_the_same_request_id_gives_the_same_receipt_whatever_became_of_it(queue):
    receipt = await queue.add(InputToSend("a"), "r1")
    assert await queue.add(InputToSend("a"), "r1") == receipt._replace(repeated=True)
    await queue.taken("r1")
    again = await queue.add(InputToSend("a"), "r1")
    assert (again.run_id, again.state, again.repeated) == (receipt.run_id, "taken", True)
    assert await texts(queue) == []
    with pytest.raises(MessageConflict):
        await queue.add(InputToSend("b"), "r1")


async def test_fifty_senders_of_the_same_request_make_one_input(queue):
    receipts = await asyncio.gather(*(queue.add(InputToSend("a"), "r1") for _ in range(50)))
    assert len({receipt.run_id for receipt in receipts}) == 1
    assert [receipt.repeated for receipt in receipts].count(False) == 1
    assert await texts(queue) == ["a"]


async def test_fifty_inputs_at_once_are_all_there(queue):
    await asyncio.gather(*(queue.add(InputToSend(str(number))) for number in range(50)))
    assert sorted(map(int, await texts(queue))) == list(range(50))


async def test_a_held_queue_waits_for_an_input_by_hand_which_runs_first(queue):
    for text in "ab":
        await queue.add(InputToSend(text), text)
    assert await queue.hold(RESTORED)
    assert await queue.held() == RESTORED
    assert await queue.next() is None
    await queue.add(InputToSend("by hand"))
    assert await queue.held() is None
    assert await texts(queue) == ["by hand", "a", "b"]


async def test_a_repeated_input_does_not_let_a_held_queue_go_on(queue):
    await queue.add(InputToSend("a"), "a")
    await queue.hold("failed")
    await queue.add(InputToSend("a"), "a")
    assert await queue.held() == "failed"


async def test_an_empty_queue_is_never_held(queue):
    assert not await queue.hold("failed")
    await queue.add(InputToSend("a"), "a")
    await queue.hold("failed")
    await queue.remove("a")
    assert await queue.held() is None


async def test_inputs_can_be_removed_and_moved(queue):
    for text in "abcd":
        await queue.add(InputToSend(text), text)
    await queue.move("d", 1)
    await queue.move("a", 4)
    await queue.remove("b")
    assert await texts(queue) == ["d", "c", "a"]
    for call in (queue.remove("b"), queue.move("b", 1), queue.taken("unknown")):
        with pytest.raises(QueuedInputNotFound):
            await call
    for place in (0, 4, True):
        with pytest.raises(InvalidArgument):
            await queue.move("d", place)
    assert (await queue.add(InputToSend("b"), "b")).state == "removed"
    assert await texts(queue) == ["d", "c", "a"]


async def test_what_may_not_be_sent_is_not_queued(queue):
    with pytest.raises(InputInvalid):
        await queue.add(InputToSend("  "))
    for request in ("", "x" * 129, "a\nb", 7):
        with pytest.raises(InvalidArgument):
            await queue.add(InputToSend("a"), request)
    assert await texts(queue) == []


async def test_a_full_queue_refuses():
    queue = InputQueue(Conversation(MemoryBackend(), PROJECT_ID, "made", "c1"))
    for number in range(MAX_WAITING):
        await queue.add(InputToSend(str(number)))
    with pytest.raises(InputQueueFull):
        await queue.add(InputToSend("more"))


async def test_a_conversation_is_deleted_with_its_queue(conversation, queue):
    await queue.add(InputToSend("a"), "a")
    await conversation.entries.backend.clear(conversation.entries.namespace)
    assert await texts(queue) == []


HOLDER = """
import sys, time
from stepwell.conversation.queue import take_conversation
from stepwell.store.file_lock import LockFile
take_conversation(LockFile.at(sys.argv[1]), "c1")
print("held", flush=True)
time.sleep(60)
"""


def test_a_conversation_has_one_writer_until_its_process_is_gone(tmp_path: Path):
    path = str(tmp_path / "locks")
    locks = LockFile.at(path)
    ticket = take_conversation(locks, "c1")
    with pytest.raises(ConversationBusy):
        take_conversation(locks, "c1")
    locks.release(take_conversation(locks, "c2"))
    locks.release(ticket)
    other = subprocess.Popen([sys.executable, "-c", HOLDER, path], stdout=subprocess.PIPE, text=True)
    assert other.stdout.readline() == "held\n"
    with pytest.raises(ConversationBusy):
        take_conversation(locks, "c1")
    os.kill(other.pid, signal.SIGKILL)
    other.wait()
    locks.release(take_conversation(locks, "c1"))
