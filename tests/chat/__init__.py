"""Conversation input and `stepwell chat`."""
