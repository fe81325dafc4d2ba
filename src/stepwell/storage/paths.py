"""The files of local data. Light: the fast commands use it without the rest."""

import os

from stepwell.store.entries import Domain


def local_path(kv_dir: str, persistent_value_dir: str, project_id: str | None, domain: Domain) -> str:
    """The database file of a project's domain. Project ids are UUIDs, so no path is built from free text."""
    if domain is Domain.PERSISTENT_VALUE:
        folder, ending = persistent_value_dir, "persistent"
    else:
        folder, ending = kv_dir, "kv"
    return os.path.join(folder, f"{project_id or 'global'}.{ending}.sqlite")
