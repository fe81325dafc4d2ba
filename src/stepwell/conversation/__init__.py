"""Conversations: messages that stay cheap to append and read, values, titles, and the standard input."""
