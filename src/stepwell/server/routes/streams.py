"""What stays open: watching a namespace, and holding its lock."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import suppress
from functools import partial
from typing import Annotated

from fastapi import APIRouter, Depends, Header
from pydantic import Field
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from stepwell.errors import AccessDenied, InvalidArgument, ProjectNotFound, StepwellError, Unauthenticated
from stepwell.jsontext import encode
from stepwell.server.access import Role
from stepwell.server.routes.addresses import of_global, of_project, span_of, uuid_of
from stepwell.server.routing import STORABLE, Body, api, body_of, json_answer, set_operation_ids
from stepwell.server.services import Services, services
from stepwell.store.entries import Change, Holder, Namespace
from stepwell.store.postgres_lease import LeaseToken, PostgresLease

router = APIRouter(tags=["storage"])

LEASE_SECONDS = 15.0
_PING_SECONDS = 1.0
_QUIET_SECONDS = 15.0


class HolderBody(Body):
    """Who asks for a lock: shown to those who wait in vain."""

    pid: Annotated[int, Field(ge=0)] = 0
    host: Annotated[str, Field(max_length=255), STORABLE] = ""
    run_id: Annotated[str, Field(max_length=100), STORABLE] | None = None


class LockBody(Body):
    """`timeout`: seconds to wait; 0 tries once."""

    timeout: Annotated[float, Field(ge=0, le=3_600, strict=False)] = 30.0
    holder: HolderBody = HolderBody()


def _declare(base: str, place: Callable[..., Awaitable[Namespace]], ending: str) -> None:
    root = f"{base}/{{domain:domain}}/{{scope}}"
    At = Annotated[Namespace, Depends(place)]  # noqa: N806  (a type)

    @api(router, "GET", f"{root}/revision", Role.GUEST)
    async def revision(request: Request, at: At) -> Response:
        """The namespace's revision: what `since` of a watch takes."""
        return json_answer({"revision": await services(request).backend.revision(at)})

    @api(router, "GET", f"{root}/watch", Role.GUEST, media="text/event-stream")
    async def watch(
        request: Request,
        at: At,
        prefix: str = "",
        start: str = "",
        stop: str | None = None,
        since: int | None = None,
        last_event_id: Annotated[str | None, Header()] = None,
    ) -> Response:
        """Changes as server-sent events: key, revision, deleted; never the value. The id is the revision."""
        span = span_of(prefix, start, stop)
        if last_event_id is not None:
            if not last_event_id.isascii() or not last_event_id.isdigit() or len(last_event_id) > 18:
                raise InvalidArgument("Last-Event-ID is no id of an event", argument="Last-Event-ID")
            since = int(last_event_id)
        backend = services(request).backend
        now = await backend.revision(at)  # a database that was restored may be behind what a watcher has seen
        begin = now if since is None else min(max(since, 0), now)
        services(request).streams.admit()
        events = _events(request, backend.watch_from(at, span, begin), begin)
        return StreamingResponse(events, media_type="text/event-stream")

    @api(router, "POST", f"{root}/lock", Role.DEVELOPER, body=LockBody, media="application/x-ndjson")
    async def lock(request: Request, at: At) -> Response:
        """Hold the namespace's lock while this answer is read: the first line names the lease, or the error.

        The lease ends when the connection does, or when it is not renewed for 15 seconds.
        """
        body = await body_of(request, LockBody)
        holder = Holder(body.holder.pid, body.holder.host, body.holder.run_id)
        services(request).streams.admit()
        return StreamingResponse(_held(request, at, body.timeout, holder), media_type="application/x-ndjson")

    @api(router, "PUT", f"{root}/lock/{{lease}}", Role.DEVELOPER)
    async def renew_lock(request: Request, at: At, lease: str) -> Response:
        """Let a lease live on; `lives` says whether it was still held."""
        lives = await services(request).backend.renew(at, uuid_of(lease), LEASE_SECONDS)
        return json_answer({"lives": lives, "seconds": LEASE_SECONDS})

    @api(router, "DELETE", f"{root}/lock/{{lease}}", Role.DEVELOPER, status=204)
    async def release_lock(request: Request, at: At, lease: str) -> Response:
        """Give the lock back; harmless when repeated."""
        held = services(request)
        token = LeaseToken(at, uuid_of(lease))
        here = held.leases.get(token.id)
        if here is not None and here.namespace == at:
            await here.release()
        else:
            await held.backend.end_lease(token)
        return Response(status_code=204)

    set_operation_ids(router, (revision, watch, lock, renew_lock, release_lock), ending)


async def _still_admitted(request: Request, role: Role) -> bool:
    """Whether the one who opened a stream may still have it: roles and keys are taken away meanwhile."""
    try:
        header, project_id = request.headers.get("authorization"), request.path_params.get("project_id")
        await services(request).gate.admit(header, role, project_id)
    except (AccessDenied, ProjectNotFound, Unauthenticated):
        return False
    return True


async def _events(request: Request, changes: AsyncIterator[Change], begin: int) -> AsyncIterator[str]:
    """Server-sent events of changes. An id is given when every change of its revision was sent before it."""
    streams = services(request).streams
    with streams.one():
        yield f"retry: 500\nid: {begin}\n\n"
        pending: asyncio.Task[Change] | None = None
        closing = asyncio.create_task(streams.closing.wait())
        seen = begin
        try:
            while not closing.done():
                pending = pending or asyncio.ensure_future(anext(changes))
                await asyncio.wait({pending, closing}, timeout=_QUIET_SECONDS, return_when=asyncio.FIRST_COMPLETED)
                if not await _still_admitted(request, Role.GUEST):
                    break
                if not pending.done():
                    yield ": still here\n\n"
                    continue
                change, pending = pending.result(), None
                shown = encode({"key": change.key, "revision": change.revision, "deleted": change.deleted})
                # An id must not promise changes of the same revision that are still to come.
                before = change.revision - 1
                if before > seen:
                    seen = before
                yield f"id: {seen}\nevent: change\ndata: {shown}\n\n"
        finally:
            closing.cancel()
            if pending is not None:
                pending.cancel()
                with suppress(asyncio.CancelledError, StopAsyncIteration, StepwellError):
                    await pending
            await changes.aclose()  # type: ignore[attr-defined]


async def _held(request: Request, at: Namespace, timeout: float, holder: Holder) -> AsyncIterator[str]:
    """Lines for as long as the lock is held; blank ones meanwhile, so that a dead reader is noticed."""
    held = services(request)
    try:
        with held.streams.one():
            waiting = asyncio.ensure_future(
                held.backend.lock(at, timeout=timeout, holder=holder, seconds=LEASE_SECONDS)
            )
            try:
                while not (await asyncio.wait({waiting}, timeout=_PING_SECONDS))[0]:
                    if not await _still_admitted(request, Role.DEVELOPER):
                        return
                    yield "\n"
                lease = waiting.result()
                held.leases[lease.id] = lease
                yield encode({"lease": lease.id, "seconds": LEASE_SECONDS}) + "\n"
                while not held.streams.closing.is_set() and await held.backend.lease_lives(at, lease.id):
                    for _ in range(round(LEASE_SECONDS / 3 / _PING_SECONDS)):
                        with suppress(TimeoutError):
                            async with asyncio.timeout(_PING_SECONDS):
                                await held.streams.closing.wait()
                        if not await _still_admitted(request, Role.DEVELOPER):
                            return
                        yield "\n"
            finally:
                # The reader may be gone: then nothing can be awaited here any more.
                waiting.add_done_callback(partial(_give_back, held))
                waiting.cancel()
    except StepwellError as error:
        yield encode({"error": error.to_dict()}) + "\n"


def _give_back(held: Services, waiting: "asyncio.Task[PostgresLease]") -> None:
    if not waiting.cancelled() and waiting.exception() is None:
        lease = waiting.result()
        held.leases.pop(lease.id, None)
        held.backend.keep(asyncio.create_task(lease.release()))


_declare("/projects/{project_id}", of_project, "")
_declare("/global", of_global, "_global")
