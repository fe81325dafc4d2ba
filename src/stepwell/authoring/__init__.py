"""Authoring: workflows and nodes as plain Python functions, and the context a run gives them."""
