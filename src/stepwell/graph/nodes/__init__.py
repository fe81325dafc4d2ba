"""The core node types."""

from stepwell.graph.nodes.agent import ReactAgent
from stepwell.graph.nodes.approver import Approver
from stepwell.graph.nodes.chat import ChatInput, ChatOutput
from stepwell.graph.nodes.credential import Credential
from stepwell.graph.nodes.entrypoints import ToolHub, WorkflowRun
from stepwell.graph.nodes.file_ops import FileOpsHub
from stepwell.graph.nodes.http import HttpRequest
from stepwell.graph.nodes.mcp_hub import McpHub
from stepwell.graph.nodes.models import Llm, LlmConfig
from stepwell.graph.nodes.python_code import PythonCode
from stepwell.graph.nodes.retrieval import Chunker, Formatter
from stepwell.graph.nodes.routing import ConditionRouter, ContextMerge, LlmBranch
from stepwell.graph.nodes.schedule import ScheduleNode
from stepwell.graph.nodes.storage import KeyValueNode, KnowledgeNode
from stepwell.graph.nodes.subflows import BatchSubflow, Subflow
from stepwell.graph.nodes.texts import FileUpload, InputText, ReadFile
from stepwell.graph.nodes.timing import Delay
from stepwell.graph.nodes.values import Preview, SmartVar, ToItems, TypeCast
from stepwell.graph.nodes.workflow_tools import GetExecutionTrace, ImportWorkflow, ReadArtifact, WorkflowInspect

CORE_TYPES: tuple[type, ...] = (
    ChatInput, ChatOutput, LlmBranch, ContextMerge, InputText, ReadFile, FileUpload, Chunker, Formatter,
    ConditionRouter, SmartVar, TypeCast, ToItems, Delay, Preview, Credential, HttpRequest, Subflow, BatchSubflow,
    FileOpsHub, PythonCode, KeyValueNode, KnowledgeNode, WorkflowInspect, ImportWorkflow, GetExecutionTrace,
    ReadArtifact, LlmConfig, Llm, ReactAgent, Approver, WorkflowRun, ToolHub, McpHub,
    ScheduleNode,
)  # fmt: skip
