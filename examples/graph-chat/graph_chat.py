"""A conversation whose turns are a graph: a router, a model with a tool, one place where answers come out."""

from stepwell import Conversation, Executor, graph_entrypoint

executor = Executor(
    project_type="conversation",
    entrypoints=[graph_entrypoint("chat", title="Talk")],
    conversation=Conversation(),
)
