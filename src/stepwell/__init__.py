"""stepwell: a durable-state runtime for workflows and agents."""

__version__ = "0.1.0"
