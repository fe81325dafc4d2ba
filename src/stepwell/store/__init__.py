"""The primitive everything stateful stands on: ordered, transactional JSON entries per namespace."""
