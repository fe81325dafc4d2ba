"""A documentation assistant: `ingest` imports Markdown folders, `ask` answers from them with citations."""

import answer
import ingest

from stepwell import Conversation, Entrypoint, Executor, TokenUsage

executor = Executor(
    project_type="conversation",
    default_entrypoint="ask",
    entrypoints=[
        Entrypoint(
            id="ask",
            title="Ask the documents",
            workflow=answer.ask,
            create_input=answer.read_arguments,
            token_usage=TokenUsage(enabled=True),
        ),
        Entrypoint(
            id="ingest",
            title="Import folders of Markdown",
            workflow=ingest.ingest,
            create_input=ingest.read_arguments,
        ),
    ],
    conversation=Conversation(),
)
