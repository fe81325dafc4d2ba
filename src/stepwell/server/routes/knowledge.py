"""Knowledge: one request an operation, one transaction each."""

from collections.abc import Awaitable, Callable
from typing import Annotated

from fastapi import APIRouter, Depends, Path, Query
from pydantic import Field
from starlette.requests import Request
from starlette.responses import Response

from stepwell.identifiers import check_document_id, check_project_id, new_id
from stepwell.knowledge.documents import Knowledge
from stepwell.knowledge.related import LISTING, SEARCHING, editing, reading, writing
from stepwell.server.access import Role
from stepwell.server.routes.bodies import OnceBody, source_of
from stepwell.server.routing import Body, api, body_of, json_answer, set_operation_ids
from stepwell.server.services import services
from stepwell.server.targets import related_project
from stepwell.storage.kv import KeyValue
from stepwell.storage.relations import Asked
from stepwell.store.entries import NO_SOURCE, Domain, Namespace, Scope
from stepwell.store.once import CommitOnce

router = APIRouter(tags=["knowledge"])

DocumentId = Annotated[str, Path(description="The document's id.")]
Decide = Callable[[Role, tuple[Asked, ...]], Awaitable[str]]
"""Gives the project whose Knowledge an address means, if the caller may do to it what is asked for."""


class DocumentBody(OnceBody):
    """A new document; the id is generated if it is left out."""

    title: str
    markdown: str
    id: str | None = None


class DocumentChange(OnceBody):
    """What to change; `expected_version` refuses the change of a document that was edited meanwhile."""

    title: str | None = None
    markdown: str | None = None
    expected_version: Annotated[int, Field(ge=1)] | None = None


class SearchBody(Body):
    """A search; see the guide for the bounds."""

    query: str
    document_id: str | None = None
    before_lines: int = 0
    after_lines: int = 0
    page_size: int = 20
    cursor: str | None = None


async def own(project_id: str) -> Decide:
    """An address under a project means that project's Knowledge; its route admitted the caller."""

    async def decide(_role: Role, _asked: tuple[Asked, ...]) -> str:
        return check_project_id(project_id)

    return decide


async def related(request: Request, project_id: str, alias: str) -> Decide:
    """An address under an alias means the related project's Knowledge."""

    async def decide(role: Role, asked: tuple[Asked, ...]) -> str:
        return await related_project(request, check_project_id(project_id), alias, role, asked)

    return decide


class _Change:
    """A change of one document, done once."""

    def __init__(self, request: Request, caller: str, owner: str, body: OnceBody) -> None:
        self._namespace = Namespace(owner, Domain.PERSISTENT_VALUE, Scope.PROJECT)
        self._backend = CommitOnce(services(request).backend, body.chosen_id() or new_id(), repeat=body.repeat)
        self.base = Knowledge(KeyValue(self._backend, self._namespace, source=source_of(caller, body.source)))

    async def is_done(self) -> bool:
        """True if it was done when it was asked for before."""
        return await self._backend.is_done(self._namespace)


def _declare(root: str, place: Callable[..., Awaitable[Decide]], ending: str) -> None:
    Allowed = Annotated[Decide, Depends(place)]  # noqa: N806  (a type)
    ProjectId = Annotated[str, Path(description="The project's UUID.")]  # noqa: N806
    exists, changed = {409: "There is one already."}, {409: "It was edited meanwhile."}

    @api(router, "GET", f"{root}/documents", Role.GUEST)
    async def list_documents(
        request: Request,
        allowed: Allowed,
        cursor: str | None = None,
        limit: Annotated[int, Query(ge=1, le=128)] = 50,
    ) -> Response:
        """Summaries of documents, newest first, a page at a time."""
        base = _base(request, await allowed(Role.GUEST, LISTING))
        return json_answer((await base.list_document_page(cursor, limit=limit)).to_dict())

    @api(router, "POST", f"{root}/documents", Role.DEVELOPER, body=DocumentBody, status=201, answers=exists)
    async def create_document(request: Request, project_id: ProjectId, allowed: Allowed) -> Response:
        """Store a new document."""
        body = await body_of(request, DocumentBody)
        document_id = new_id() if body.id is None else check_document_id(body.id)
        owner = await allowed(Role.DEVELOPER, writing(document_id))
        change = _Change(request, project_id, owner, body)
        if await change.is_done():
            return json_answer((await change.base.get_summary(document_id)).to_dict(), 201)
        return json_answer((await change.base.create_document(body.title, body.markdown, document_id)).to_dict(), 201)

    @api(router, "GET", f"{root}/documents/{{document_id}}", Role.GUEST)
    async def get_document(request: Request, allowed: Allowed, document_id: DocumentId) -> Response:
        """A whole document."""
        base = _base(request, await allowed(Role.GUEST, reading(document_id)))
        return json_answer((await base.get_document(document_id)).to_dict())

    @api(router, "PATCH", f"{root}/documents/{{document_id}}", Role.DEVELOPER, body=DocumentChange, answers=changed)
    async def edit_document(
        request: Request, project_id: ProjectId, allowed: Allowed, document_id: DocumentId
    ) -> Response:
        """Change a document's title, text or both."""
        body = await body_of(request, DocumentChange)
        owner = await allowed(Role.DEVELOPER, editing(document_id))
        change = _Change(request, project_id, owner, body)
        if await change.is_done():
            return json_answer((await change.base.get_summary(document_id)).to_dict())
        summary = await change.base.edit_document(
            document_id, body.title, body.markdown, expected_version=body.expected_version
        )
        return json_answer(summary.to_dict())

    @api(router, "DELETE", f"{root}/documents/{{document_id}}", Role.DEVELOPER, optional_body=OnceBody)
    async def delete_document(
        request: Request, project_id: ProjectId, allowed: Allowed, document_id: DocumentId
    ) -> Response:
        """Delete a document; `removed` says whether it was there."""
        body = await body_of(request, OnceBody, optional=True)
        owner = await allowed(Role.DEVELOPER, writing(document_id))
        change = _Change(request, project_id, owner, body)
        removed = await change.is_done() or await change.base.delete_document(document_id)
        return json_answer({"removed": removed})

    @api(router, "GET", f"{root}/documents/{{document_id}}/lines", Role.GUEST)
    async def read_document_lines(
        request: Request,
        allowed: Allowed,
        document_id: DocumentId,
        start: Annotated[int, Query(ge=1)],
        end: Annotated[int, Query(ge=1)],
    ) -> Response:
        """Lines of a document: those of the range that exist, and how many there are in all."""
        base = _base(request, await allowed(Role.GUEST, reading(document_id)))
        return json_answer((await base.read_document_lines(document_id, start, end)).to_dict())

    @api(router, "POST", f"{root}/search", Role.GUEST, body=SearchBody)
    async def search_documents(request: Request, allowed: Allowed) -> Response:
        """Lines that contain a text, whatever the case."""
        body = await body_of(request, SearchBody)
        asked = SEARCHING if body.document_id is None else (*LISTING, *reading(body.document_id))
        base = _base(request, await allowed(Role.GUEST, asked))
        page = await base.search_documents(
            body.query, body.document_id, body.before_lines, body.after_lines, body.page_size, body.cursor
        )
        return json_answer(page.to_dict())

    handlers = (list_documents, create_document, get_document, edit_document, delete_document)
    set_operation_ids(router, (*handlers, read_document_lines, search_documents), ending)


def _base(request: Request, project_id: str) -> Knowledge:
    namespace = Namespace(project_id, Domain.PERSISTENT_VALUE, Scope.PROJECT)
    return Knowledge(KeyValue(services(request).backend, namespace, source=NO_SOURCE))


_declare("/projects/{project_id}/knowledge", own, "")
_declare("/projects/{project_id}/related/{alias}/knowledge", related, "_related")
