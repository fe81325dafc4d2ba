"""Search and lines on every backend."""

import random

import pytest

from stepwell.errors import DocumentNotFound, InvalidArgument, InvalidCursor
from stepwell.knowledge import Knowledge, SearchHit
from stepwell.store.backend import Backend
from tests.conformance.conftest import fill, knowledge_on


@pytest.fixture
def base(backend: Backend) -> Knowledge:
    return knowledge_on(backend)


async def search_all(base: Knowledge, query: str, **options: int) -> list[SearchHit]:
    found: list[SearchHit] = []
    cursor = None
    while True:
        page = await base.search_documents(query, cursor=cursor, **options)  # type: ignore[arg-type]
        found += page.hits
        cursor = page.next_cursor
        if cursor is None:
            return found


@pytest.mark.parametrize(
    "query",
    [
        "用户", "设备", "检索", "索", "ですか", "설정", "gen", "跑gen后", "n后", "db", "C++", "foo.bar", "@nasa", "50%",
        "POL-358", "don't", '"', "*", "NEAR(", "col:", "-", "_", "%", "\\", "\\n", "/", "'; DROP", "\x00", "\t", "😀",
        "é", "e\u0301", "\u0301", "\ud800", "b\x1f", "x\x0cy", "\u2028", "👨‍👩‍👧", "\x7f",
    ],
)  # fmt: skip
async def test_any_text_is_found_literally(base: Knowledge, query: str) -> None:
    await base.create_document("decoy", "nothing of this kind here ABC xyz 123\nplain\n中间\n", "decoy")
    await base.create_document("decoy", "café — “quoted” ſtraße", "decoy2")
    await base.create_document("hit", f"first\nbefore{query}after\nlast", "hit")
    found = await search_all(base, query)
    expected = [("hit", 2), ("decoy2", 1)] if query == "é" else [("hit", 2)]
    assert [(hit.document_id, hit.line) for hit in found] == expected
    assert found[0].text == f"before{query}after"
    assert found[0].column == 7


@pytest.mark.parametrize(
    ("query", "line"),
    [
        ("STRASSE", "Die straße"), ("straße", "DIE STRASSE"), ("ß", "Masse"), ("ss", "Maße"), ("ẞ", "Masse"),
        ("i\u0307stanbul", "İstanbul"), ("İ", "i\u0307x"), ("σας", "ΣΑΣ"), ("ΣΑΣ", "σας"), ("ς", "Σ"),
        ("kelvin", "\u212aelvin"), ("\u212a", "K"), ("fi", "ﬁ"), ("ﬁ", "FI"), ("office", "oﬃce"), ("S", "ſ"),
        ("ʼn", "ŉ"), ("привет", "ПРИВЕТ"), ("École", "éCOLE"), ("ǆ", "Ǆ"), ("ᏸ", "Ᏸ"), ("t", "ﬅ"), ("𐐨", "𐐀"),
    ],
)  # fmt: skip
async def test_case_is_folded_on_both_sides_and_the_line_is_the_original(
    base: Knowledge, query: str, line: str
) -> None:
    await base.create_document("t", f"中\n{line}\r\n文", "d")
    await base.create_document("t", f"中文 — {line}", "e")
    found = await search_all(base, query)
    assert [(hit.document_id, hit.line, hit.text) for hit in found] == [("e", 1, f"中文 — {line}"), ("d", 2, line)]


async def test_a_query_matches_within_lines_only_and_titles_do_not_count(base: Knowledge) -> None:
    await base.create_document("needle in the title", "nee\ndle\nnee\rdle\nnee\r\ndle", "d")
    assert await search_all(base, "needle") == []


async def test_search_reading_and_context_agree_on_lines(base: Knowledge) -> None:
    await base.create_document("t", "a\nb\fc\nd\r\ne\rf\u2028g\x85h\x0bi\x1cj\n", "d")
    lines = ["a", "b\fc", "d", "e", "f\u2028g\x85h\x0bi\x1cj"]
    whole = await base.read_document_lines("d", 1, 100)
    assert (whole.lines, whole.total, whole.start) == (lines, 5, 1)
    for number, line in enumerate(lines, start=1):
        [hit] = await search_all(base, line[-1], before_lines=1, after_lines=2)
        assert (hit.line, hit.text) == (number, line)
        assert hit.before == lines[max(0, number - 2) : number - 1]
        assert hit.after == lines[number : number + 2]
        assert (await base.read_document_lines("d", hit.line, hit.line)).lines == [line]


@pytest.mark.parametrize(
    ("text", "lines"),
    [
        ("", []),
        ("\n", [""]),
        ("a", ["a"]),
        ("a\n", ["a"]),
        ("a\n\n", ["a", ""]),
        ("\r\r\n", ["", ""]),
        ("\n\r", ["", ""]),
    ],
)
async def test_lines_at_the_edges(base: Knowledge, text: str, lines: list[str]) -> None:
    await base.create_document("t", text, "d")
    found = await base.read_document_lines("d", 1, 10**9)
    assert (found.lines, found.total) == (lines, len(lines))


async def test_ranges(base: Knowledge) -> None:
    await base.create_document("t", "1\n2\n3", "d")
    for start, end, expected in ((1, 1, ["1"]), (2, 3, ["2", "3"]), (3, 9, ["3"]), (4, 4, []), (9, 10**30, [])):
        found = await base.read_document_lines("d", start, end)
        assert (found.lines, found.total, found.start) == (expected, 3, start)
    wrong = [(0, 1), (-1, 1), (1, 0), (3, 2), (-3, -1), (1.0, 2), (1, 2.5), ("1", 2), (1, "2"), (True, 1), (None, 1)]
    for start, end in wrong:  # type: ignore[assignment]
        with pytest.raises(InvalidArgument):
            await base.read_document_lines("d", start, end)


@pytest.mark.parametrize(
    "options",
    [
        {"query": ""}, {"query": "a\nb"}, {"query": "\r"}, {"query": None}, {"query": 5}, {"query": "x" * 1_001},
        {"before_lines": -1}, {"before_lines": 101}, {"after_lines": 1.5}, {"after_lines": "1"},
        {"page_size": 0}, {"page_size": 201}, {"page_size": True},
    ],
)  # fmt: skip
async def test_wrong_arguments(base: Knowledge, options: dict[str, object]) -> None:
    await base.create_document("t", "x", "d")
    with pytest.raises(InvalidArgument):
        await base.search_documents(**{"query": "x"} | options)  # type: ignore[arg-type]


async def test_hits_come_newest_document_first_then_by_line(base: Knowledge) -> None:
    await fill(base, [("t", f"needle\nhay\nNEEDLE {n}\n", f"d{n}") for n in range(300)])
    expected = [(f"d{n}", line) for n in reversed(range(300)) for line in (1, 3)]
    for page_size in (200, 7):
        found = await search_all(base, "Needle", page_size=page_size)
        assert [(hit.document_id, hit.line) for hit in found] == expected


async def test_a_search_ends_with_its_page(base: Knowledge) -> None:
    for n in range(3):
        await base.create_document("t", "x\nx", f"d{n}")
    page = await base.search_documents("x", page_size=6)
    if page.next_cursor is not None:  # more could have come: only reading on tells
        rest = await base.search_documents("x", page_size=6, cursor=page.next_cursor)
        assert (rest.hits, rest.next_cursor) == ([], None)
    assert len(page.hits) == 6
    assert (await base.search_documents("x", page_size=7)).next_cursor is None


async def test_searching_one_document(base: Knowledge) -> None:
    for name in ("a", "b"):
        await base.create_document("t", "\n".join(f"needle {n}" for n in range(25)), name)
    found: list[SearchHit] = []
    cursor = None
    while True:
        page = await base.search_documents("needle", "a", page_size=10, cursor=cursor)
        found += page.hits
        cursor = page.next_cursor
        if cursor is None:
            break
    assert [(hit.document_id, hit.line) for hit in found] == [("a", n) for n in range(1, 26)]


async def test_a_search_of_one_document_ends_where_the_document_does(base: Knowledge) -> None:
    await base.create_document("t", "x\n" * 30, "a")
    cursor = (await base.search_documents("x", "a", page_size=10)).next_cursor
    await base.delete_document("a")
    with pytest.raises(DocumentNotFound):
        await base.search_documents("x", "a", page_size=10, cursor=cursor)
    await base.create_document("t", "x\n" * 30, "a")
    page = await base.search_documents("x", "a", page_size=10, cursor=cursor)  # another document than was searched
    assert (page.hits, page.next_cursor) == ([], None)
    with pytest.raises(InvalidCursor):
        await base.search_documents("x", "b", page_size=10, cursor=cursor)


async def test_a_search_stays_right_while_documents_come_and_go(base: Knowledge) -> None:
    choose = random.Random(3)
    names = [f"keep{n}" for n in range(200)] + [f"go{n}" for n in range(200)]
    choose.shuffle(names)
    await fill(base, [("t", "needle\nhay\nneedle", name) for name in names])
    going = [name for name in names if name.startswith("go")]
    seen: list[tuple[str, int]] = []
    cursor, rounds = None, 0
    while True:
        page = await base.search_documents("needle", page_size=5, cursor=cursor)
        seen += [(hit.document_id, hit.line) for hit in page.hits]
        cursor = page.next_cursor
        if cursor is None:
            break
        rounds += 1
        for _ in range(3):
            if going:
                name = going.pop(choose.randrange(len(going)))
                await base.delete_document(name)
                if choose.random() < 0.5:
                    await base.create_document("again", "needle\nneedle", name)
        await base.create_document("new", "needle", f"new{rounds}")
    assert len(seen) == len(set(seen))
    assert {(name, line) for name in names if name.startswith("keep") for line in (1, 3)} <= set(seen)


async def test_a_search_goes_on_when_its_index_page_is_emptied(base: Knowledge) -> None:
    await fill(base, [("t", "needle", f"d{n}") for n in range(300)])
    page = await base.search_documents("needle", page_size=10)
    for n in range(128, 300):
        await base.delete_document(f"d{n}")
    found = await base.search_documents("needle", page_size=10, cursor=page.next_cursor)
    assert [hit.document_id for hit in found.hits] == [f"d{n}" for n in range(127, 117, -1)]


async def test_long_lines_are_cut_around_the_hit(base: Knowledge) -> None:
    line = "é" * 5_000 + "needle" + "x" * 5_000
    await base.create_document("t", f"{'b' * 3_000}\n{line}\n{'a' * 3_000}", "d")
    [hit] = await search_all(base, "NEEDLE", before_lines=1, after_lines=1)
    assert hit.truncated
    assert hit.column == 5_001
    assert hit.text.startswith("…é")
    assert hit.text.endswith("x…")
    assert "needle" in hit.text
    assert len(hit.text) <= 1_002
    assert hit.before == ["b" * 1_000 + "…"]
    assert hit.after == ["a" * 1_000 + "…"]


async def test_a_page_has_a_bounded_amount_of_text(base: Knowledge) -> None:
    await base.create_document("t", ("x" * 2_000 + "\n") * 3_000, "d")
    page = await base.search_documents("x", before_lines=100, after_lines=100, page_size=200)
    size = sum(len(hit.text) + sum(map(len, hit.before)) + sum(map(len, hit.after)) for hit in page.hits)
    assert 900_000 < size < 1_300_000
    following = await base.search_documents(
        "x", before_lines=100, after_lines=100, page_size=200, cursor=page.next_cursor
    )
    assert following.hits[0].line == page.hits[-1].line + 1


async def test_results_as_json(base: Knowledge) -> None:
    made = await base.create_document("t", "a\nneedle\nb", "d")
    page = await base.search_documents("needle", before_lines=1)
    assert page.to_dict() == {
        "items": [
            {"document_id": "d", "title": "t", "line": 2, "column": 1, "text": "needle", "before": ["a"], "after": [],
             "truncated": False}
        ],
        "next_cursor": None,
    }  # fmt: skip
    assert (await base.list_document_page()).to_dict() == {"items": [made.to_dict()], "next_cursor": None, "total": 1}
    assert (await base.get_document("d")).to_dict()["markdown"] == "a\nneedle\nb"
    assert (await base.read_document_lines("d", 2, 2)).to_dict() == {
        "id": "d", "title": "t", "start": 2, "lines": ["needle"], "total": 3,
    }  # fmt: skip
