"""Import folders of Markdown files into Knowledge: unchanged files are skipped, removed ones deleted."""

from dataclasses import dataclass, field
from pathlib import Path

from stepwell import Context, node, workflow
from stepwell.knowledge import document_id_of, put_document


@dataclass
class IngestInput:
    """The folders to import. A folder's name is its collection: importing it again replaces what it held."""

    folders: list[str]
    conversation_id: str | None = None


@dataclass
class IngestOutput:
    """How many documents were touched, over all folders; `skipped` files are not UTF-8."""

    created: int = 0
    updated: int = 0
    unchanged: int = 0
    deleted: int = 0
    skipped: list[str] = field(default_factory=list)


def read_arguments(args: list[str], conversation_id: str | None) -> IngestInput:
    """Take the folders from the command line: `stepwell run . -e ingest -- docs ../more-docs`."""
    if not args:
        raise ValueError("name at least one folder of Markdown files, for example: -- docs")
    return IngestInput(args, conversation_id)


@node
def list_files(folder: str) -> list[str]:
    """The Markdown files below a folder, as sorted relative paths."""
    root = Path(folder)
    if not root.is_dir():
        raise FileNotFoundError(f"{folder} is not a folder")
    return sorted(path.relative_to(root).as_posix() for path in root.rglob("*.md") if path.is_file())


@node
async def import_file(folder: str, name: str, ctx: Context) -> str:
    """Import one file and say what happened: created, updated, unchanged or skipped."""
    try:
        markdown = (Path(folder) / name).read_text(encoding="utf-8-sig")
    except UnicodeDecodeError:
        return "skipped"
    collection = collection_of(folder)
    document_id = document_id_of(collection, name)
    outcome = await put_document(ctx.knowledge, document_id, markdown, Path(name).stem)
    if outcome == "created":
        await ctx.storage.host.kv.set_value(f"file:{document_id}", {"collection": collection, "name": name})
    return outcome


@node
async def delete_removed(folder: str, names: list[str], ctx: Context) -> int:
    """Delete the documents of files that are no longer in the folder."""
    files, collection = ctx.storage.host.kv, collection_of(folder)
    kept = {f"file:{document_id_of(collection, name)}" for name in names}
    gone = [
        entry.key
        async for entry in files.scan("file:")
        if entry.value["collection"] == collection and entry.key not in kept
    ]
    for key in gone:
        await ctx.knowledge.delete_document(key.removeprefix("file:"))
        await files.delete_value(key)
    return len(gone)


@workflow
async def ingest(data: IngestInput, ctx: Context) -> IngestOutput:
    """Bring Knowledge in line with the folders."""
    result = IngestOutput()
    for folder in data.folders:
        names = await list_files(folder)
        for done, name in enumerate(names, start=1):
            outcome = await import_file(folder, name, ctx)
            if outcome == "skipped":
                result.skipped.append(f"{folder}/{name}")
            else:
                setattr(result, outcome, getattr(result, outcome) + 1)
            ctx.progress(done, len(names), f"{collection_of(folder)}: {name}")
        result.deleted += await delete_removed(folder, names, ctx)
    async with ctx.output("summary") as out:
        await out.write(
            f"{result.created} created, {result.updated} updated, {result.unchanged} unchanged, "
            f"{result.deleted} deleted."
        )
        for skipped in result.skipped:
            await out.write(f"\nSkipped, not UTF-8: {skipped}")
    return result


def collection_of(folder: str) -> str:
    """The name a folder's documents are kept under."""
    return Path(folder).resolve().name
