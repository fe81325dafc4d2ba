"""`stepwell chat`: one conversation, sent to by one person at a time."""
