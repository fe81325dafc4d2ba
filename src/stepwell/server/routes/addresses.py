"""How addresses name namespaces."""

from collections.abc import Mapping
from enum import StrEnum
from typing import Annotated

from fastapi import Path, Query
from starlette.convertors import Convertor, register_url_convertor
from starlette.requests import Request

from stepwell.errors import ConversationRequired, InvalidArgument, StepwellError
from stepwell.identifiers import check_conversation_id, check_key, check_prefix, check_project_id
from stepwell.store.entries import Domain, Namespace, Scope, Span


class _DomainConvertor(Convertor[str]):
    """Domains of entries in paths: `/projects/X/knowledge/documents/entries` is no address of entries."""

    regex = "|".join(Domain)

    def convert(self, value: str) -> str:
        return value

    def to_string(self, value: str) -> str:
        return value


register_url_convertor("domain", _DomainConvertor())


class ProjectScope(StrEnum):
    """The scopes of a project."""

    PROJECT = "project"
    CONVERSATION = "conversation"


class GlobalScope(StrEnum):
    """The scopes of the workflow scope model."""

    GLOBAL = "global"
    WORKFLOW = "workflow"
    CONVERSATION = "conversation"


class GlobalDomain(StrEnum):
    """The domains of the workflow scope model."""

    KV = "kv"
    PERSISTENT_VALUE = "persistent_value"
    CONVERSATION = "conversation"


ConversationId = Annotated[str | None, Query(description="For the conversation scope.")]
Workflow = Annotated[str | None, Query(description="For the scopes workflow and conversation.")]
Own = Annotated[str | None, Query(description="A workflow that has KV of its own in the project.")]


async def of_project(
    project_id: Annotated[str, Path()],
    domain: Domain,
    scope: ProjectScope,
    conversation_id: ConversationId = None,
    workflow: Own = None,
) -> Namespace:
    """The namespace an address of a project names."""
    if workflow is not None and domain is not Domain.KV:
        raise InvalidArgument(f"no workflow has {domain} of its own", argument="workflow")
    own = None if workflow is None else check_key(workflow)
    return Namespace(
        check_project_id(project_id), domain, Scope(scope), own, _conversation(scope.value, conversation_id)
    )


def plain_project_address(request: Request) -> tuple[Namespace, Mapping[str, str]] | None:
    """The namespace and the arguments of a request to a project's entries; None if something about it is unusual."""
    given = request.query_params
    conversation_id = given.get("conversation_id")
    scope = request.path_params["scope"]
    if len(given) != len(given.multi_items()) or (scope, conversation_id is None) not in _PLAIN:
        return None
    project_id, domain = check_project_id(request.path_params["project_id"]), Domain(request.path_params["domain"])
    talk = None if conversation_id is None else check_conversation_id(conversation_id)
    return Namespace(project_id, domain, Scope(scope), None, talk), given


_PLAIN = frozenset({("project", True), ("conversation", False)})


async def of_global(
    domain: GlobalDomain, scope: GlobalScope, workflow: Workflow = None, conversation_id: ConversationId = None
) -> Namespace:
    """The namespace an address without a project names."""
    if scope is not GlobalScope.GLOBAL and not workflow:
        raise InvalidArgument(f"the scope {scope} needs a workflow", argument="workflow")
    named = None if scope is GlobalScope.GLOBAL else check_key(workflow)
    return Namespace(None, Domain(domain), Scope(scope), named, _conversation(scope.value, conversation_id))


def _conversation(scope: str, conversation_id: str | None) -> str | None:
    if scope != "conversation":
        if conversation_id is not None:
            raise InvalidArgument(f"the scope {scope} has no conversation_id", argument="conversation_id")
        return None
    if conversation_id is None:
        raise ConversationRequired("the conversation scope needs a conversation_id", hint="add it to the address")
    return check_conversation_id(conversation_id)


def span_of(prefix: str, start: str, stop: str | None) -> Span:
    """The keys an address means: those that begin with `prefix`, or those from `start` to `stop`.

    Raises:
        InvalidArgument, InvalidKey
    """
    if not prefix:
        return Span(check_prefix(start), stop and check_key(stop))
    if start or stop is not None:
        raise InvalidArgument("prefix goes without start and stop", argument="prefix")
    return Span.prefix(check_prefix(prefix))


def uuid_of(text: str) -> str:
    """A UUID from outside.

    Raises:
        InvalidArgument
    """
    try:
        return check_project_id(text)
    except StepwellError:
        raise InvalidArgument(f"{text!r:.60} is not a UUID") from None
