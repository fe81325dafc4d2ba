"""Language models in a graph, through the run's own providers."""

from typing import Annotated, Any

from pydantic import BaseModel, Field

from stepwell.graph.contexts import text_of, with_messages
from stepwell.graph.node_context import NodeContext
from stepwell.graph.nodes.attachments import attachments_of, stored_picture
from stepwell.graph.nodes.talking import SENT_SETTINGS, Talk, asked
from stepwell.graph.ports import AgentContext, AgentContextOrNone, without_effect
from stepwell.graph.registry import node_type

LLM_ROUNDS = 8
_UNFINISHED = "The task was not finished within the allowed number of rounds."


@node_type("ai/llm_config", title="Model")
class LlmConfig:
    """Which model, and how it is asked: `model` is a provider of the project, or `type:model`.

    With `stream` its text is shown while it comes; with `json_mode` it is data for other nodes, and not shown.
    """

    class Inputs(BaseModel):
        model: str
        model_override: str | None = None
        temperature: float | None = None
        top_p: float | None = None
        max_tokens: int | None = None
        frequency_penalty: float | None = None
        presence_penalty: float | None = None
        json_mode: bool = False
        stream: bool = True
        timeout_secs: Annotated[
            float | None, Field(description="how long the provider may be silent; its own timeout by default")
        ] = None
        compatibility_profile: Annotated[
            str | None, without_effect("the type of the project's provider says how it is spoken to")
        ] = None
        ephemeral: Annotated[bool, without_effect("a config is made anew in every run anyway")] = False

    class Outputs(BaseModel):
        llm_config: dict[str, Any]

    async def run(self, inputs: Any, ctx: NodeContext) -> dict[str, Any]:
        config = {name: getattr(inputs, name) for name in ("json_mode", "stream", "timeout_secs")}
        config["model"] = inputs.model_override or inputs.model
        settings = {name: value for name in SENT_SETTINGS if (value := getattr(inputs, name)) is not None}
        return {"llm_config": config | settings}


@node_type("ai/llm", title="Language model")
class Llm:
    """Asks a model. Tools wired to it are called until it answers."""

    class Inputs(BaseModel):
        llm_config: dict[str, Any]
        context: AgentContextOrNone = None
        instruction_prompt: str | None = None
        user_message: str | None = None
        user_message_rich: dict[str, Any] | None = None
        image_base64: str | None = None
        tools: Annotated[str | None, without_effect("a model has the tools that are connected to this port")] = None

    class Outputs(BaseModel):
        response: str
        context: AgentContext
        llm_config: dict[str, Any]
        finish_reason: str
        prompt_tokens: int
        completion_tokens: int
        total_tokens: int
        tool_calls: list[Any]
        tool_results: list[Any]

    async def run(self, inputs: Any, ctx: NodeContext) -> dict[str, Any]:
        instruction = inputs.instruction_prompt
        if inputs.llm_config.get("json_mode"):
            instruction = f"{instruction or ''}\n\nAnswer with one JSON value and nothing else.".strip()
        rich = inputs.user_message_rich or {}
        listed = rich.get("attachments")
        attached, problems = await attachments_of(ctx, listed if isinstance(listed, list) else ())
        for problem in problems:
            ctx.run.log(f"not attached: {problem}", level="warning")
        if inputs.image_base64:
            attached.append(await stored_picture(ctx, inputs.image_base64, "image_base64"))
        messages = asked(inputs.context, instruction, inputs.user_message or text_of(rich.get("text")), attached)
        talk = Talk(ctx, inputs.llm_config, messages)
        answered = False
        while not answered and talk.rounds < LLM_ROUNDS:
            answered = await talk.round()
        finish = talk.finish if answered else "max_iterations"
        return {
            "response": talk.text if answered else talk.text or _UNFINISHED,
            "context": with_messages({**(inputs.context or {}), "messages": messages}, *talk.added),
            "llm_config": inputs.llm_config, "finish_reason": finish, "prompt_tokens": talk.prompt_tokens,
            "completion_tokens": talk.completion_tokens, "total_tokens": talk.prompt_tokens + talk.completion_tokens,
            "tool_calls": talk.calls, "tool_results": talk.results,
        }  # fmt: skip
