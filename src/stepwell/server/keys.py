"""Keys as parts of addresses: `{name:key}` in a route takes whatever is left of the path, to the character."""

from starlette.convertors import Convertor, register_url_convertor


class _Key(Convertor[str]):
    """Like Starlette's `path`, which stops at the end of a line: `a%0A` would be the key `a`."""

    regex = "(?s:.*)"

    def convert(self, value: str) -> str:
        return value

    def to_string(self, value: str) -> str:
        return value


register_url_convertor("key", _Key())
ENTRY = "entries/{key:key}"
