"""Redaction: secrets go, the rest stays."""

import base64
from urllib.parse import quote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stepwell.redaction import MASK, Redactor, says_secret

SECRET = "s3cr3t/Value+with=signs"


@given(st.text(), st.text())
def test_a_known_secret_never_survives(before, after):
    redactor = Redactor([SECRET])
    forms = (SECRET, quote(SECRET, safe=""), base64.b64encode(SECRET.encode()).decode().rstrip("="))
    for form in forms:
        assert form not in redactor.text(f"{before}{form}{after}")
        assert form not in str(redactor.value({"a": [f"{before} {form}"]}))


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text("abcXYZ 019é中\n"),
    lambda inner: st.lists(inner) | st.dictionaries(st.sampled_from(["a", "key", "token_count", "max_tokens"]), inner),
    max_leaves=20,
)


@given(json_values)
def test_what_is_not_secret_is_the_same_object(value):
    assert Redactor([SECRET]).value(value) is value


@pytest.mark.parametrize(
    "name", ["password", "PASSWORD", "api_key", "apiKey", "X-Api-Key", "client_secret", "Authorization", "access_token"]
)
def test_fields_that_say_secret(name):
    assert says_secret(name)
    assert Redactor().value({name: "whatever"}) == {name: MASK}


@pytest.mark.parametrize(
    "name", ["token_count", "max_tokens", "key", "keys", "tokens", "author", "monkey", "passed", ""]
)
def test_harmless_fields(name):
    assert not says_secret(name)
    assert Redactor().value({name: "whatever"}) == {name: "whatever"}


@pytest.mark.parametrize(
    "text",
    [
        "sk-" + "a1B2" * 6, "ghp_" + "a1B2" * 6, "AKIA" + "ABCD" * 4, "Authorization: Bearer " + "abc.def-" * 4,
        "-----BEGIN RSA PRIVATE KEY-----\nMIIB\n-----END RSA PRIVATE KEY-----",
    ],
)  # fmt: skip
def test_credential_shapes(text):
    masked = Redactor().text(f"before {text} after")
    assert MASK in masked
    assert text.split()[-1] not in masked
    assert masked.startswith("before")


PIECES = (
    SECRET, "sk-" + "a1B2" * 6, "sk-", "xsk-" + "a1B2" * 6, "ghp_" + "a1B2" * 6, "gh", "AKIA" + "ABCD" * 4, "earer ",
    "Bearer " + "abc.def-" * 4, "-----BEGIN PRIVATE KEY-----", "-----END PRIVATE KEY-----", "bearing", " ", "\n", "天",
)  # fmt: skip


@given(st.lists(st.sampled_from(PIECES), max_size=12))
def test_long_texts_are_masked_like_short_ones(pieces):
    redactor, text, filler = Redactor([SECRET]), " ".join(pieces), "word " * 5_000
    masked = redactor.text(text)
    assert redactor.text(filler + text) == filler + masked


def test_the_environment_tells_secrets():
    environ = {"MY_API_KEY": "abcdefgh-1", "PATH": "/usr/bin:/bin", "DB_PASSWORD": "short", "KEYBOARD": "qwertyuiop"}
    redactor = Redactor.from_environment(environ)
    assert redactor.text("abcdefgh-1 short qwertyuiop /usr/bin:/bin") == f"{MASK} short qwertyuiop /usr/bin:/bin"
