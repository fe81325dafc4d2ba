"""The default input: text and attachments as they are put together before they are sent, and as a message.

A file is stored as soon as it is attached, and only its reference travels: in the draft, in the queue, in the
arguments, in the message. What somebody does to the file afterwards changes nothing.
"""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, Protocol

from stepwell.conversation.inputs import Attachments, ConversationInput, format_conversation_input
from stepwell.conversation.slash import format_slash_parameters
from stepwell.conversation.state import Conversation
from stepwell.errors import FileRejected, InputInvalid

MAX_ATTACHMENTS = 20
MAX_MESSAGE_CHARS = 1_000_000

_DRAFT = "draft"
_REFERENCE = "artifact://"


class StoredFile(Protocol):
    """What a file store tells of a file."""

    @property
    def reference(self) -> str: ...
    @property
    def name(self) -> str: ...
    @property
    def media_type(self) -> str: ...
    @property
    def size(self) -> int: ...


class Files(Protocol):
    """Where attachments are kept: `ctx.files` is one."""

    async def attach(self, path: Any, *, name: str | None = None, media_type: str | None = None) -> Any: ...
    async def record(self, reference: str) -> Any: ...


class Attachment(NamedTuple):
    """A stored file that goes with an input. `kind` is images, files or videos; `size` is in bytes."""

    reference: str
    name: str
    media_type: str
    size: int
    kind: str

    def to_dict(self) -> dict[str, Any]:
        """The attachment as it stands in a message."""
        return self._asdict()


class InputToSend(NamedTuple):
    """One input as it is queued: text, attachments, parameters, and the entrypoint where it is not the default one."""

    message: str = ""
    attachments: tuple[Attachment, ...] = ()
    parameters: Mapping[str, str | bool] = {}
    entrypoint: str | None = None

    def checked(self) -> "InputToSend":
        """The same input, if it may be sent.

        Raises:
            InputInvalid: it is empty, too long, or has too many attachments.
        """
        if not self.message.strip() and not self.attachments:
            raise InputInvalid("the input has neither text nor attachments")
        if len(self.message) > MAX_MESSAGE_CHARS:
            raise InputInvalid(
                f"the text is longer than {MAX_MESSAGE_CHARS:,} characters", hint="attach it as a file instead"
            )
        _check_count(self.attachments)
        return self

    def args(self) -> list[str]:
        """The arguments for the entrypoint: the parameters, then what `parse_conversation_input` reads."""
        named = {kind: tuple(a.reference for a in self.attachments if a.kind == kind) for kind in Attachments._fields}
        given = ConversationInput(self.message, **named)
        return [*format_slash_parameters(self.parameters), *format_conversation_input(given)]

    def to_dict(self) -> dict[str, Any]:
        """The input as JSON."""
        return {
            "message": self.message, "attachments": [attachment.to_dict() for attachment in self.attachments],
            "parameters": dict(self.parameters), "entrypoint": self.entrypoint,
        }  # fmt: skip

    @classmethod
    def of(cls, stored: Mapping[str, Any]) -> "InputToSend":
        """The input that `to_dict` made."""
        attachments = tuple(Attachment(**fields) for fields in stored.get("attachments", ()))
        return cls(stored.get("message", ""), attachments, stored.get("parameters", {}), stored.get("entrypoint"))


def kind_of(media_type: str, name: str, declared: Attachments) -> str:
    """How a file goes with an input: an image or a video as such where the conversation takes those, else as a file.

    Raises:
        FileRejected: the conversation takes no such file.
    """
    if media_type.startswith("image/") and declared.images:
        return "images"
    if media_type.startswith("video/") and declared.videos:
        return "videos"
    if declared.files:
        return "files"
    taken = [kind for kind in Attachments._fields if getattr(declared, kind)]
    raise FileRejected(
        f"this conversation takes {' and '.join(taken) or 'no attachments'}: {name!r:.120} is {media_type}",
        hint="the project declares them: Conversation(attachments=[…])",
    )


def attachment_of(stored: StoredFile, declared: Attachments) -> Attachment:
    """A stored file as an attachment of a conversation.

    Raises:
        FileRejected: the conversation takes no such file.
    """
    kind = kind_of(stored.media_type, stored.name, declared)
    return Attachment(stored.reference, stored.name, stored.media_type, stored.size, kind)


async def message_of(given: ConversationInput, files: Files) -> dict[str, Any]:
    """The user's message for a conversation or an agent: paths become references, and each says what it is.

    Args:
        given: what `parse_conversation_input` read.
        files: `ctx.files`.

    Raises:
        FileRejected, FileMissing: an attachment cannot be read, or is not what it is given as.
        InputInvalid: there are too many.
    """
    attachments = []
    for kind in Attachments._fields:
        paths: Sequence[str] = getattr(given, kind)
        for path in paths:
            stored = await (files.record(path) if path.startswith(_REFERENCE) else files.attach(path))
            if kind != "files" and not stored.media_type.startswith(f"{kind[:-1]}/"):
                raise FileRejected(
                    f"{stored.name!r:.120} is {stored.media_type}, not one of the {kind}", hint="give it with --files"
                )
            attachments.append(Attachment(stored.reference, stored.name, stored.media_type, stored.size, kind))
    _check_count(attachments)
    message: dict[str, Any] = {"role": "user", "content": given.message}
    return message | {"attachments": [each.to_dict() for each in attachments]} if attachments else message


async def read_draft(conversation: Conversation) -> InputToSend:
    """What was put together and not sent yet."""
    return InputToSend.of(await conversation.entries.get_value(_DRAFT) or {})


async def write_draft(conversation: Conversation, draft: InputToSend) -> None:
    """Keep what is put together, in the place of the last draft."""
    if draft == InputToSend():
        await conversation.entries.delete_value(_DRAFT)
    else:
        await conversation.entries.set_value(_DRAFT, draft.to_dict())


def _check_count(attachments: Sequence[Attachment]) -> None:
    if len(attachments) > MAX_ATTACHMENTS:
        raise InputInvalid(f"an input carries at most {MAX_ATTACHMENTS} attachments, not {len(attachments)}")
