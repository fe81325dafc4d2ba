"""Files that go with a message: stored ones by reference, and pictures that come as base64 text."""

import base64
import binascii
from collections.abc import Iterable
from typing import Any, NamedTuple

from stepwell.errors import FileMissing, FileRejected, InvalidArgument
from stepwell.files.store import FileRecord
from stepwell.graph.artifacts import artifact_of
from stepwell.graph.node_context import NodeContext

_PICTURES = ((b"\x89PNG", "png"), (b"\xff\xd8\xff", "jpeg"), (b"GIF8", "gif"))
BYTES_PER_MB = 1024 * 1024
NO_OCR = "there is no text recognition here; a model that takes pictures can read them"


class Attachments(NamedTuple):
    """What can be attached, as a message has it, and what is wrong with the rest, a sentence each."""

    attached: list[dict[str, Any]]
    problems: list[str]


async def attachments_of(ctx: NodeContext, items: Iterable[Any], max_mb: float | None = None) -> Attachments:
    """Look up what is to be attached: references, or objects with one."""
    found = Attachments([], [])
    for item in items:
        try:
            record = await ctx.run.files.record(artifact_of(item))
            if max_mb is not None and record.size > max_mb * BYTES_PER_MB:
                raise FileRejected(f"{record.name} is over {max_mb:g} MB")  # noqa: TRY301
        except (FileMissing, FileRejected, InvalidArgument) as error:
            found.problems.append(error.message)
        else:
            found.attached.append(as_attachment(record))
    return found


def as_attachment(record: FileRecord) -> dict[str, Any]:
    """A stored file as a message has it."""
    return {
        "reference": record.reference, "name": record.name, "media_type": record.media_type, "size": record.size
    }  # fmt: skip


async def stored_picture(ctx: NodeContext, text: str, argument: str) -> dict[str, Any]:
    """Store a picture that is base64 text, also as a `data:` URL, and give its attachment.

    Raises:
        InvalidArgument: it is no base64, or no PNG, JPEG, GIF or WebP.
    """
    encoded = text.partition(",")[2] if text.startswith("data:") else text
    try:
        content = base64.b64decode("".join(encoded.split()), validate=True)
    except binascii.Error:
        raise InvalidArgument(f"{argument} is not base64", argument=argument) from None
    kinds = [kind for mark, kind in _PICTURES if content.startswith(mark)]
    if content[:4] == b"RIFF" and content[8:12] == b"WEBP":
        kinds = ["webp"]
    if not kinds:
        raise InvalidArgument(f"{argument} is no PNG, JPEG, GIF or WebP picture", argument=argument)
    return as_attachment(await ctx.run.files.write(f"picture.{kinds[0]}", content, media_type=f"image/{kinds[0]}"))
