"""The bodies of changes and reads of entries, and what they mean."""

from typing import Annotated, Any

from pydantic import Field

from stepwell.errors import InvalidArgument
from stepwell.identifiers import check_key
from stepwell.jsontext import MAX_VALUE_BYTES, check_size, decode_untrusted, encode
from stepwell.server.routes.addresses import uuid_of
from stepwell.server.routing import STORABLE, Body
from stepwell.store.entries import Check, Source, Write

MAX_ITEMS = 25_000
Wait = Annotated[float, Field(ge=0, le=60, strict=False, description="Seconds to wait for a foreign lock.")]


class SourceBody(Body):
    """Who writes: shown with the entries. `project_id` is the namespace's project, or null."""

    project_id: Annotated[str, STORABLE] | None = None
    entrypoint: Annotated[str, Field(max_length=500), STORABLE] | None = None
    run_id: Annotated[str, Field(max_length=100), STORABLE] | None = None
    conversation_id: Annotated[str, Field(max_length=256), STORABLE] | None = None


class OnceBody(Body):
    """Of what is done once: `commit_id` is a UUID made by the client.

    A request that was sent before is sent again with its `commit_id` and `repeat`.
    """

    source: SourceBody = SourceBody()
    commit_id: str | None = None
    repeat: bool = False

    def chosen_id(self) -> str | None:
        """The checked `commit_id`, if one was given.

        Raises:
            InvalidArgument
        """
        return None if self.commit_id is None else uuid_of(self.commit_id)


class ClearBody(OnceBody):
    """Delete every entry of the namespace."""

    wait: Wait = 30.0


class KeysBody(Body):
    """The keys to read."""

    keys: Annotated[list[str], Field(max_length=MAX_ITEMS)]


class CheckBody(Body):
    """`key` is still at `revision`; 0 means absent."""

    key: str
    revision: Annotated[int, Field(ge=0, lt=2**63)]


class WriteBody(Body):
    """One write: `value`, or `text` (JSON text), or neither to delete the key."""

    key: str
    value: Any = None
    text: str | None = None
    delete: bool = False


class ChangeBody(OnceBody):
    """All checks hold and all writes land, or nothing is changed."""

    checks: Annotated[list[CheckBody], Field(max_length=MAX_ITEMS, default_factory=list)]
    writes: Annotated[list[WriteBody], Field(max_length=MAX_ITEMS, default_factory=list)]
    wait: Wait = 30.0


class CommitBody(ChangeBody):
    """See `ChangeBody`; `lease` is a held lock of the namespace."""

    lease: str | None = None


def checks_of(given: list[CheckBody]) -> list[Check]:
    """The checks of a body.

    Raises:
        InvalidKey
    """
    return [Check(check_key(each.key), each.revision) for each in given]


def writes_of(given: list[WriteBody]) -> list[Write]:
    """The writes of a body.

    Raises:
        InvalidArgument, InvalidKey, InvalidJson, ValueTooLarge, ValueNotSerializable
    """
    writes = []
    seen = set()
    for each in given:
        if check_key(each.key) in seen:
            raise InvalidArgument(f"the key {each.key!r:.80} is written twice", hint="one write a key in a commit")
        seen.add(each.key)
        ways = each.model_fields_set & {"value", "text"}
        if each.delete == bool(ways) or len(ways) > 1:
            raise InvalidArgument(f"the write of {each.key!r:.80} needs one of value, text and delete: true")
        if each.delete:
            writes.append(Write(each.key, None))
        else:
            writes.append(Write(each.key, encode(each.value) if each.text is None else checked_text(each.text)))
    return writes


def checked_text(text: str | bytes) -> str:
    """JSON text from outside, as it is stored: to the character, but for white space around it.

    Raises:
        InvalidJson, ValueTooLarge
    """
    size = len(text) if isinstance(text, bytes) else len(text.encode("utf-8", "surrogatepass"))
    check_size(size, MAX_VALUE_BYTES)
    decode_untrusted(text, what="the value")
    given = text.decode() if isinstance(text, bytes) else text
    return given.strip(" \t\r\n")


def source_of(project_id: str | None, given: SourceBody) -> Source:
    """The source of a write: nobody writes in the name of another project.

    Raises:
        InvalidArgument
    """
    writer = given.project_id if "project_id" in given.model_fields_set else project_id
    if writer is not None and project_id is not None and uuid_of(writer) != project_id:
        raise InvalidArgument("the source's project_id is not the project of the address", argument="source")
    return Source(writer, given.entrypoint, given.run_id, given.conversation_id)
