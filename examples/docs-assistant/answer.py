"""Answer a question from Knowledge with citations, without a model: search, rank, quote."""

import re
from dataclasses import dataclass
from typing import Any

from stepwell import Context, node, parse_conversation_input, workflow
from stepwell.knowledge import mirror_conversation

STOP_WORDS = frozenset(
    (
        "a about an and are as at be by can do does explain for from happens how i in is it its me my of on or our "
        "should so tell that the their there this to use was we what when where which who why will with would you your"
    ).split(" ")
)
# Words that only carry the grammar of a Chinese question; what is left between them is worth searching for.
CHINESE_GRAMMAR = re.compile(
    "什么是|是什么|为什么|怎么样|怎样|怎么|如何|什么|哪些|哪个|哪里|请问|可以|能否|是否|需要|应该|我们|[的了吗呢吧啊和与或在是有把被对从到给请我你]"
)
CITATIONS = 3
HITS_PER_TERM = 60


@dataclass
class AskInput:
    """One question of a conversation."""

    message: str
    conversation_id: str | None = None


@dataclass
class AskOutput:
    """The answer as text, and the places it quotes (`document:line`)."""

    answer: str
    citations: list[str]


def read_arguments(args: list[str], conversation_id: str | None) -> AskInput:
    """Take the question from the standard conversation input: `--message "…"`, or just the words."""
    if args and not args[0].startswith("--"):
        return AskInput(" ".join(args), conversation_id)
    return AskInput(parse_conversation_input(args).message, conversation_id)


def search_terms(question: str) -> list[str]:
    """What to look for: Latin words that carry meaning, and pieces of Chinese between its grammar words.

    >>> search_terms("How do I cancel a flow run?")
    ['cancel', 'flow', 'run']
    >>> search_terms("如何配置告警组？")
    ['配置告警组', '配置', '告警', '警组', '置告']
    """
    terms: list[str] = []
    for word in re.findall(r"[^\W\d_][\w.+#-]*[\w+#]|\w", question):
        for piece in re.split(r"([\u3400-\u9fff]+)", word):
            if re.match(r"[\u3400-\u9fff]", piece):
                for chunk in CHINESE_GRAMMAR.split(piece):
                    if len(chunk) >= 2:
                        terms.append(chunk)
                        terms += [chunk[i : i + 2] for i in range(0, len(chunk) - 1, 2)]
                        terms += [chunk[i : i + 2] for i in range(1, len(chunk) - 1, 2)] if len(chunk) > 2 else []
            elif len(piece) > 1 and piece.casefold() not in STOP_WORDS:
                terms.append(piece)
    return list(dict.fromkeys(terms))


@dataclass
class Passage:
    """Lines of one document around a hit, with the terms found in them."""

    document_id: str
    title: str
    line: int
    text: str
    terms: list[str]
    score: float


@node
async def find_passages(question: str, ctx: Context) -> list[Passage]:
    """Search every term and rank lines: rare terms count more, several different ones together most."""
    found: dict[tuple[str, int], Passage] = {}
    for term in search_terms(question):
        page = await ctx.knowledge.search_documents(term, before_lines=1, after_lines=3, page_size=HITS_PER_TERM)
        weight = len(term) / (1 + len(page.hits)) ** 0.5
        for hit in page.hits:
            passage = found.setdefault(
                (hit.document_id, hit.line),
                Passage(hit.document_id, hit.title, hit.line, quote(hit), [], 0.0),
            )
            if term not in passage.terms:
                passage.terms.append(term)
                heading = 1.6 if hit.text.lstrip().startswith(("#", "title:")) else 1.0
                passage.score += weight * heading + (weight if term.casefold() in hit.title.casefold() else 0)
    for passage in found.values():
        passage.score *= len(passage.terms)
    return pick(sorted(found.values(), key=lambda passage: (-passage.score, passage.document_id, passage.line)))


def pick(ranked: list[Passage]) -> list[Passage]:
    """The best passages, none of which repeats lines of another."""
    chosen: list[Passage] = []
    for passage in ranked:
        near = any(other.document_id == passage.document_id and abs(other.line - passage.line) <= 5 for other in chosen)
        if not near:
            chosen.append(passage)
        if len(chosen) == CITATIONS:
            break
    return chosen


def quote(hit: Any) -> str:
    """The hit with its context lines, without blank edges."""
    return "\n".join([*hit.before, hit.text, *hit.after]).strip("\n")


@workflow
async def ask(data: AskInput, ctx: Context) -> AskOutput:
    """Answer with quotes, and keep the conversation: messages, title and a mirrored transcript."""
    chinese = re.search(r"[\u3400-\u9fff]", data.message) is not None
    await ctx.conversation.append_message({"role": "user", "content": data.message})
    state = await ctx.conversation.summary()
    if state.title is None:
        await ctx.conversation.set_title(data.message)
    passages = await find_passages(data.message, ctx)
    parts: list[str] = []
    async with ctx.output("answer") as out:
        for part in compose(passages, chinese=chinese):
            parts.append(part)
            await out.write(part)
    answer = "".join(parts)
    citations = [f"{passage.document_id}:{passage.line}" for passage in passages]
    await ctx.conversation.append_message({"role": "assistant", "content": answer, "citations": citations})
    await mirror_conversation(ctx)
    return AskOutput(answer, citations)


def compose(passages: list[Passage], *, chinese: bool) -> list[str]:
    """The answer, piece by piece as it is streamed."""
    if not passages:
        return ["没有找到相关内容。请换一种说法。" if chinese else "Nothing found. Try other words."]
    parts = ["在文档中找到：\n" if chinese else "From the documents:\n"]
    for passage in passages:
        parts.append(f"\n{passage.title} [{passage.document_id}:{passage.line}]\n")
        parts += [f"  │ {line}\n" for line in passage.text.split("\n")]
    return parts
