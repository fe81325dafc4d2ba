"""`stepwell kv get` without click: shells and scripts call it in loops, and click alone costs four empty Pythons.

Whatever is unusual (another option, an error, data on a server) is left to the command proper, which does it all
again and explains itself.
"""

from stepwell.cli.render import Output, dumps
from stepwell.errors import StepwellError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

    from stepwell.project.manifest import Manifest
    from stepwell.settings import Settings
    from stepwell.store.entries import Record

_WITH_VALUE = ("--project", "--domain", "--conversation-id")


def quick_get(arguments: "Sequence[str]") -> bool:
    """Print the entry `kv get` asks for; False, and nothing printed, if this is a case for the command proper."""
    given = _parsed(arguments)
    if given is None:
        return False
    from stepwell.project.manifest import load_manifest
    from stepwell.settings import load_settings
    from stepwell.storage.declaration import DataStorage, ScopeModel
    from stepwell.store.entries import Domain

    output = Output()
    output.json = "--json" in given
    domain = given.get("--domain", "kv")
    if domain not in ("kv", "persistent_value"):
        return False
    try:
        manifest = load_manifest(given.get("--project", "."))
        if manifest.data_storage is DataStorage.SERVER or manifest.scope_model is ScopeModel.WORKFLOW:
            return False
        settings = load_settings(project=manifest.settings, project_folder=manifest.folder)
        record = read_local(manifest, settings, given["KEY"], Domain(domain), given.get("--conversation-id"))
    except StepwellError:
        return False
    if record is None:
        return False
    print_record(output, record)
    return True


def _parsed(arguments: "Sequence[str]") -> dict[str, str] | None:
    words: list[str] = []
    given: dict[str, str] = {}
    rest = iter(arguments)
    for argument in rest:
        name, equals, value = argument.partition("=")
        if argument == "--json":
            given[argument] = ""
        elif name in _WITH_VALUE:
            given[name] = value if equals else next(rest, "")
            if not given[name] or given[name].startswith("-"):
                return None
        elif argument.startswith("-"):
            return None
        else:
            words.append(argument)
    if len(words) != 3 or words[:2] != ["kv", "get"]:
        return None
    return given | {"KEY": words[2]}


def read_local(
    manifest: "Manifest", settings: "Settings", key: str, domain: "Any", conversation_id: str | None
) -> "Record | None":
    """An entry of a project's own local data; asking creates no file.

    Raises:
        InvalidKey, InvalidId: the key or conversation id breaks a rule.
        StorageUnavailable, StorageCorrupt, SchemaTooNew: the file cannot be read.
    """
    from stepwell.identifiers import check_conversation_id, check_key
    from stepwell.storage.paths import local_path
    from stepwell.store.entries import Namespace, Scope
    from stepwell.store.sqlite import SqliteCore

    check_key(key)
    scope = Scope.PROJECT if conversation_id is None else Scope.CONVERSATION
    if conversation_id is not None:
        check_conversation_id(conversation_id)
    path = local_path(settings.kv_dir, settings.persistent_value_dir, manifest.project_id, domain)
    core = SqliteCore(path)
    try:
        if not core.exists():
            return None
        return core.read(Namespace(manifest.project_id, domain, scope, None, conversation_id), (key,)).get(key)
    finally:
        core.close()


def print_record(output: Output, record: "Record") -> None:
    """Print a record's value, or under --json the whole entry."""
    from stepwell.storage.entry import Entry

    entry = Entry.of(record)
    output.line(dumps(entry.to_dict() if output.json else entry.value))
