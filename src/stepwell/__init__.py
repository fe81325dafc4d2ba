"""stepwell: a durable-state runtime for workflows and agents.

Public names are loaded when they are first used, so that `import stepwell` costs nothing.
"""

__version__ = "0.1.0"

_PUBLIC = {
    "Context": "stepwell.authoring.context",
    "Conversation": "stepwell.authoring.executor",
    "Entrypoint": "stepwell.authoring.executor",
    "Executor": "stepwell.authoring.executor",
    "Footer": "stepwell.conversation.slash",
    "Host": "stepwell.runtime.host",
    "MISSING": "stepwell.storage.entry",
    "SlashCommand": "stepwell.conversation.slash",
    "SlashParameter": "stepwell.conversation.slash",
    "StepwellError": "stepwell.errors",
    "TokenReport": "stepwell.usage.report",
    "TokenUsage": "stepwell.authoring.executor",
    "create_tool_approval_gate": "stepwell.authoring.toolbox",
    "graph_entrypoint": "stepwell.graph.entrypoint",
    "load_project": "stepwell.project.loader",
    "load_settings": "stepwell.settings",
    "message_of": "stepwell.conversation.default_input",
    "node": "stepwell.authoring.decorators",
    "node_type": "stepwell.graph.registry",
    "parse_conversation_input": "stepwell.conversation.inputs",
    "parse_slash_parameters": "stepwell.conversation.slash",
    "tool": "stepwell.tools.declaration",
    "workflow": "stepwell.authoring.decorators",
    "workflow_tools": "stepwell.graph.agent_tools",
}

__all__ = [*_PUBLIC]

TYPE_CHECKING = False
if TYPE_CHECKING:
    from stepwell.authoring.context import Context as Context
    from stepwell.authoring.decorators import node as node
    from stepwell.authoring.decorators import workflow as workflow
    from stepwell.authoring.executor import Conversation as Conversation
    from stepwell.authoring.executor import Entrypoint as Entrypoint
    from stepwell.authoring.executor import Executor as Executor
    from stepwell.authoring.executor import TokenUsage as TokenUsage
    from stepwell.authoring.toolbox import create_tool_approval_gate as create_tool_approval_gate
    from stepwell.conversation.default_input import message_of as message_of
    from stepwell.conversation.inputs import parse_conversation_input as parse_conversation_input
    from stepwell.conversation.slash import Footer as Footer
    from stepwell.conversation.slash import SlashCommand as SlashCommand
    from stepwell.conversation.slash import SlashParameter as SlashParameter
    from stepwell.conversation.slash import parse_slash_parameters as parse_slash_parameters
    from stepwell.errors import StepwellError as StepwellError
    from stepwell.graph.agent_tools import workflow_tools as workflow_tools
    from stepwell.graph.entrypoint import graph_entrypoint as graph_entrypoint
    from stepwell.graph.registry import node_type as node_type
    from stepwell.project.loader import load_project as load_project
    from stepwell.runtime.host import Host as Host
    from stepwell.settings import load_settings as load_settings
    from stepwell.storage.entry import MISSING as MISSING
    from stepwell.tools.declaration import tool as tool
    from stepwell.usage.report import TokenReport as TokenReport


def __getattr__(name: str) -> object:
    if name in _PUBLIC:
        import sys

        module = _PUBLIC[name]
        __import__(module)
        value = getattr(sys.modules[module], name)
        globals()[name] = value
        return value
    raise AttributeError(f"module 'stepwell' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*globals(), *_PUBLIC])
