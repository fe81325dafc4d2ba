"""`--related-project alias=/absolute/path`: the option of every command that starts a run on this machine."""

import click

from stepwell.errors import InvalidArgument

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

related_option: "Callable[[Callable[..., Any]], Callable[..., Any]]" = click.option(
    "--related-project", "related", multiple=True, metavar="ALIAS=PATH", help="Folder of a related project."
)


def check_related(related: tuple[str, ...]) -> dict[str, str]:
    """`alias=/absolute/path` options by alias.

    Raises:
        InvalidArgument: another form, a relative path, or an alias given twice.
    """
    import os

    folders: dict[str, str] = {}
    for option in related:
        alias, equals, path = option.partition("=")
        if not equals or not alias or not os.path.isabs(path) or alias in folders:
            raise InvalidArgument(
                f"--related-project {option!r:.200} is not alias=/absolute/path (each alias once)",
                argument="--related-project",
            )
        if not os.path.isdir(path):
            raise InvalidArgument(f"--related-project {alias}: there is no folder {path}", argument="--related-project")
        folders[alias] = path
    return folders
