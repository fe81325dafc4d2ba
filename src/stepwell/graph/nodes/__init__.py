"""The core node types."""

CORE_TYPES: tuple[type, ...] = ()
