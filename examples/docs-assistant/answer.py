"""Answer a question from Knowledge with citations, without a model: search, rank, quote."""

import re
from dataclasses import dataclass
from itertools import pairwise
from math import log

from stepwell import Context, node, parse_conversation_input, workflow
from stepwell.knowledge import SearchHit, mirror_conversation

STOP_WORDS = frozenset(
    (
        "a about after all an and any are as at be by can do does explain for from happens has have how i if in into "
        "is it its me my not of on or our should so some tell than that the their them there this to use using was we "
        "what when where which while who why will with would you your"
    ).split(" ")
)
# Words that only carry the grammar of a Chinese question; what is left between them is worth searching for.
CHINESE_GRAMMAR = re.compile(
    "什么是|是什么|为什么|怎么样|怎样|怎么|如何|什么|哪些|哪个|哪里|请问|可以|能否|是否|需要|应该|我们|[的了吗呢吧啊和与或在是有把被对从到给请我你]"
)
CHINESE = re.compile("[\u3400-\u9fff]+")
CITATIONS = 3
HITS_PER_TERM = 200
CONTEXT_LINES = 3


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
    """What to look for: Latin words that carry meaning, neighbours together, and pieces of Chinese.

    >>> search_terms("How do I cancel a flow run?")
    ['cancel', 'flow', 'run', 'flow run']
    >>> search_terms("如何配置告警组？")
    ['配置告警组', '配置', '置告', '告警', '警组']
    """
    words = re.findall(r"[A-Za-z0-9][A-Za-z0-9_.+#-]*[A-Za-z0-9_+#]|[A-Za-z0-9]", question)
    telling = [word for word in words if word.casefold() not in STOP_WORDS]
    pairs = [f"{a} {b}" for a, b in pairwise(words) if a in telling and b in telling]
    terms = [*telling, *pairs]
    for run in CHINESE.findall(question):
        for chunk in CHINESE_GRAMMAR.split(run):
            if len(chunk) >= 2:
                terms += [chunk, *(chunk[i : i + 2] for i in range(len(chunk) - 1))]
    return list(dict.fromkeys(terms))


@dataclass
class Passage:
    """Lines of one document around a hit, and how well they fit the question."""

    document_id: str
    title: str
    line: int
    text: str
    score: float


@node
async def find_passages(question: str, ctx: Context) -> list[Passage]:
    """Search every term and rank the places: rare terms count more, several different ones near together most."""
    hits: dict[tuple[str, int], SearchHit] = {}
    weights: dict[str, float] = {}
    for term in search_terms(question):
        page = await ctx.knowledge.search_documents(
            term, before_lines=1, after_lines=CONTEXT_LINES, page_size=HITS_PER_TERM
        )
        weights[term] = log(2 + 2 * HITS_PER_TERM / (1 + len(page.hits))) * (1 + 0.2 * len(term.split()))
        hits |= {(hit.document_id, hit.line): hit for hit in page.hits}
    ranked = [
        Passage(hit.document_id, hit.title, hit.line, quote(hit), score(hit, weights))
        for hit in hits.values()
        if not hit.document_id.startswith("conversation-")  # transcripts of earlier answers are no source
    ]
    return pick(sorted(ranked, key=lambda passage: (-passage.score, passage.document_id, passage.line)))


def score(hit: SearchHit, weights: dict[str, float]) -> float:
    """Weights of the terms in the line, its surroundings and the title; a heading counts more."""
    heading = 1.5 if re.match(r"\s*(#|title:)", hit.text) else 1.0
    line, near = hit.text, "\n".join([*hit.before, *hit.after])
    total = matched = 0.0
    for term, weight in weights.items():
        found = max(heading * has(line, term), 0.5 * has(near, term)) + 0.8 * has(hit.title, term)
        total += weight * found
        matched += found > 0
    return total * (matched / len(weights))


def has(text: str, term: str) -> bool:
    """Is the term there as a word? Plural and other endings count; Chinese has no word borders."""
    if CHINESE.match(term):
        return term in text
    return (
        re.search(rf"(?<![A-Za-z0-9]){re.escape(term)}(?:s|ed|ing|led|ling)?(?![A-Za-z0-9])", text, re.IGNORECASE)
        is not None
    )


def pick(ranked: list[Passage]) -> list[Passage]:
    """The best passages, none of which repeats lines of another."""
    chosen: list[Passage] = []
    for passage in ranked:
        if not any(near(passage, other) for other in chosen):
            chosen.append(passage)
        if len(chosen) == CITATIONS:
            break
    return chosen


def near(one: Passage, other: Passage) -> bool:
    """Do the two quote the same lines?"""
    return one.document_id == other.document_id and abs(one.line - other.line) <= 1 + CONTEXT_LINES


def quote(hit: SearchHit) -> str:
    """The hit with its context lines, without blank edges."""
    return "\n".join([*hit.before, hit.text, *hit.after]).strip("\n")


@node(durable=True)
async def say(role: str, content: str, citations: list[str], ctx: Context) -> None:
    """Add a message to the conversation. A node, so that a resumed run does not say it twice."""
    message = {"role": role, "content": content} | ({"citations": citations} if citations else {})
    await ctx.conversation.append_message(message)


@workflow
async def ask(data: AskInput, ctx: Context) -> AskOutput:
    """Answer with quotes, and keep the conversation: messages, title and a mirrored transcript."""
    await say("user", data.message, [], ctx)
    if (await ctx.conversation.summary()).title is None:
        await ctx.conversation.set_title(data.message)
    passages = await find_passages(data.message, ctx)
    parts: list[str] = []
    async with ctx.output("answer") as out:
        for part in compose(passages, chinese=CHINESE.search(data.message) is not None):
            parts.append(part)
            await out.write(part)
    answer = "".join(parts)
    citations = [f"{passage.document_id}:{passage.line}" for passage in passages]
    await say("assistant", answer, citations, ctx)
    # There is no model here, so words stand in for tokens: they show how reports add up to exact totals.
    await ctx.token_usage.report(
        input_tokens=words_in(data.message), output_tokens=words_in(answer), provider_name="none", model_id="words"
    )
    await mirror_conversation(ctx)
    return AskOutput(answer, citations)


def words_in(text: str) -> int:
    """Latin words and Chinese characters."""
    return len(re.findall(r"[\u3400-\u9fff]|[A-Za-z0-9]+", text))


def compose(passages: list[Passage], *, chinese: bool) -> list[str]:
    """The answer, piece by piece as it is streamed."""
    if not passages:
        return ["没有找到相关内容。请换一种说法。" if chinese else "Nothing found. Try other words."]
    parts = ["在文档中找到：\n" if chinese else "From the documents:\n"]
    for passage in passages:
        parts.append(f"\n{passage.title} [{passage.document_id}:{passage.line}]\n")
        parts += [f"  │ {line}\n" for line in passage.text.split("\n")]
    return parts
