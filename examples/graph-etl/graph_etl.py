"""A pipeline without a model: lines of text become items, each goes through a subflow, the numbers end in storage."""

from stepwell import Executor, graph_entrypoint

executor = Executor(entrypoints=[graph_entrypoint("etl", title="Read, convert, store")])
