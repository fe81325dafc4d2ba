"""`stepwell knowledge`: Markdown documents of a project."""

import sys

import click

from stepwell.cli.app import common, pass_output
from stepwell.cli.confirm import confirm
from stepwell.cli.place import Place
from stepwell.cli.render import Output

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from typing import Any

    from stepwell.knowledge import Knowledge


@click.group()
def knowledge() -> None:
    """List, search, edit and import Knowledge documents."""


def where(command: "Callable[..., Any]") -> "Callable[..., Any]":
    """The option that says which location is meant."""
    option = click.option(
        "--location", type=click.Choice(["local", "server"]), help="Default: where the project keeps state."
    )
    return common(option(command))


def with_knowledge(place: Place, location: str | None, operation: "Callable[[Knowledge], Awaitable[Any]]") -> "Any":
    """Run an operation on the project's Knowledge."""
    import asyncio

    from stepwell.knowledge import knowledge_of

    async def session() -> "Any":
        try:
            return await operation(knowledge_of(place.location(location)))
        finally:
            await place.close()

    return asyncio.run(session())


@knowledge.command("list")
@click.option("--limit", type=click.IntRange(1, 128), default=50, show_default=True)
@click.option("--cursor", help="Continue a list.")
@where
@pass_output
def list_(output: Output, limit: int, cursor: str | None, location: str | None) -> None:
    """List documents, newest first."""
    page = with_knowledge(Place(output), location, lambda base: base.list_document_page(cursor, limit=limit))
    output.items(
        [document.to_dict() for document in page.documents],
        [("id", lambda d: d["id"]), ("title", lambda d: d["title"]), ("updated", lambda d: d["updated_at"][:19]),
         ("characters", lambda d: d["size"])],
        next_cursor=page.next_cursor, empty="no documents",
    )  # fmt: skip


@knowledge.command("get")
@click.argument("document_id")
@where
@pass_output
def get(output: Output, document_id: str, location: str | None) -> None:
    """Print a document's Markdown."""
    document = with_knowledge(Place(output), location, lambda base: base.get_document(document_id))
    if output.json or output.on_terminal:
        output.data(document.to_dict(), document.markdown)
    else:
        output.stream_raw(document.markdown)  # to the byte, also without a line feed at the end


@knowledge.command("create")
@click.argument("title")
@click.argument("file")
@click.option("--id", "document_id", help="The document's id; generated without.")
@where
@pass_output
def create(output: Output, title: str, file: str, document_id: str | None, location: str | None) -> None:
    """Create a document from FILE (`-` is stdin)."""
    markdown = read_text(file)
    summary = with_knowledge(Place(output), location, lambda base: base.create_document(title, markdown, document_id))
    output.data(summary.to_dict(), f"created {summary.id}")


@knowledge.command("edit")
@click.argument("document_id")
@click.option("--title", help="The new title.")
@click.option("--file", help="The new text (`-` is stdin).")
@where
@pass_output
def edit(output: Output, document_id: str, title: str | None, file: str | None, location: str | None) -> None:
    """Change a document's title, text or both."""
    markdown = None if file is None else read_text(file)
    summary = with_knowledge(
        Place(output), location, lambda base: base.edit_document(document_id, title=title, markdown=markdown)
    )
    output.data(summary.to_dict(), f"edited {summary.id}")


@knowledge.command("delete")
@click.argument("document_id")
@click.option("--yes", is_flag=True, help="Do not ask.")
@where
@pass_output
def delete(output: Output, document_id: str, yes: bool, location: str | None) -> None:
    """Delete a document for good."""
    from stepwell.errors import DocumentNotFound

    confirm(yes, f"delete the document {document_id}?")
    removed = with_knowledge(Place(output), location, lambda base: base.delete_document(document_id))
    if not removed:
        raise DocumentNotFound(f"there is no document {document_id!r}", document_id=document_id)
    output.data({"id": document_id, "removed": True}, f"deleted {document_id}")


@knowledge.command("search")
@click.argument("query")
@click.option("--document", "document_id", help="Search this document only.")
@click.option("-B", "--before", type=click.IntRange(0, 100), default=0, help="Context lines before a hit.")
@click.option("-A", "--after", type=click.IntRange(0, 100), default=0, help="Context lines after a hit.")
@click.option("--limit", type=click.IntRange(1, 200), default=20, show_default=True)
@click.option("--cursor", help="Continue a search.")
@where
@pass_output
def search(
    output: Output, query: str, document_id: str | None, before: int, after: int, limit: int, cursor: str | None,
    location: str | None,
) -> None:  # fmt: skip
    """Find lines that contain QUERY (literal text, ignoring case)."""
    page = with_knowledge(
        Place(output),
        location,
        lambda base: base.search_documents(
            query, document_id=document_id, before_lines=before, after_lines=after, page_size=limit, cursor=cursor
        ),
    )
    if output.json or not (before or after):
        output.items(
            [hit.to_dict() for hit in page.hits],
            [("place", lambda h: f"{h['document_id']}:{h['line']}"), ("line", lambda h: h["text"].strip())],
            next_cursor=page.next_cursor, empty="nothing found",
        )  # fmt: skip
        return
    for hit in page.hits:
        output.text(f"{hit.document_id}:{hit.line}")
        for line in (*hit.before, hit.text, *hit.after):
            output.text(f"  {line}")
    if page.next_cursor is not None:
        output.talk(f"more: --cursor {page.next_cursor}")


@knowledge.command("lines")
@click.argument("document_id")
@click.argument("start", type=int)
@click.argument("end", type=int)
@where
@pass_output
def lines(output: Output, document_id: str, start: int, end: int, location: str | None) -> None:
    """Print lines START to END of a document."""
    found = with_knowledge(Place(output), location, lambda base: base.read_document_lines(document_id, start, end))
    output.data(
        found.to_dict(), lambda: "\n".join(f"{found.start + n:>6}  {line}" for n, line in enumerate(found.lines))
    )


@knowledge.command("import")
@click.argument("folder")
@where
@pass_output
def import_(output: Output, folder: str, location: str | None) -> None:
    """Import every .md file below FOLDER; files that did not change are skipped."""
    from stepwell.knowledge.importing import import_folder

    def progress(done: int, total: int, name: str) -> None:
        if output.verbose or (sys.stderr.isatty() and done == total):
            output.talk(f"{done}/{total} {name}")

    result = with_knowledge(Place(output), location, lambda base: import_folder(base, folder, progress))
    output.data(
        result.to_dict(),
        f"{result.created} created, {result.updated} updated, {result.unchanged} unchanged"
        + "".join(f"\nskipped {name}: not UTF-8, or not readable" for name in result.skipped),
    )


@knowledge.command("check")
@click.option("--repair", is_flag=True, help="Rebuild the index from the documents.")
@where
@pass_output
def check(output: Output, repair: bool, location: str | None) -> int:
    """Check that index, locators and documents agree."""
    from stepwell.knowledge.checking import check_base, rebuild_index

    place = Place(output)
    problems = with_knowledge(place, location, check_base)
    repaired = bool(problems) and repair
    if repaired:
        with_knowledge(place, location, rebuild_index)
        problems = with_knowledge(place, location, check_base)
    output.data(
        {"problems": problems, "repaired": repaired},
        "\n".join(problems) if problems else ("repaired" if repaired else "index and documents agree"),
    )
    return 1 if problems else 0


def read_text(file: str) -> str:
    """A file's text (`-` is stdin), as UTF-8, to the byte.

    Raises:
        InvalidArgument: it cannot be read or is not UTF-8.
    """
    from stepwell.errors import InvalidArgument

    try:
        if file == "-":
            raw = sys.stdin.buffer.read()
        else:
            with open(file, "rb") as opened:
                raw = opened.read()
        return raw.decode()
    except UnicodeDecodeError as error:
        raise InvalidArgument(f"{file} is not UTF-8: {error.reason} at byte {error.start}", argument="file") from None
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise InvalidArgument(f"{file} cannot be read: {reason}", argument="file") from None
