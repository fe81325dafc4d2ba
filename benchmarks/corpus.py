"""Ten thousand documents, 40 MB, Latin and Chinese: from a folder of real Markdown, or made of real-looking words."""

import os
import random
from collections.abc import Iterator
from pathlib import Path

DOCUMENTS = 10_000
CHARS = 3_400
LATIN = (
    "the run of a worker starts when its schedule fires and ends with a report that names every step in order so an "
    "operator can see which deployment failed and retry only what is left queue pool flow task state cache result "
    "parameter variable block event automation trigger concurrency limit server client profile setting container"
).split()
HAN = "工作流任务实例告警组租户队列数据源资源中心管理员创建删除更新查询配置参数执行失败成功重试调度时间节点依赖关系服务器日志监控"


def documents(count: int = DOCUMENTS) -> Iterator[tuple[str, str]]:
    """Titles and texts, the same in every run. STEPWELL_BENCH_DATA names a folder of Markdown to take them from."""
    chooser = random.Random(7)
    real = [path.read_text(encoding="utf-8") for path in sorted(_real_files())]
    for number in range(count):
        if real:
            text = real[number % len(real)]
            start = chooser.randrange(max(1, len(text) - CHARS))
            body = text[start : start + CHARS].ljust(CHARS // 4, ".")
        else:
            body = _made(chooser, chinese=number % 3 == 0)
        yield f"Document {number}", f"# Document {number}\n\n{body}\n"


def _real_files() -> Iterator[Path]:
    folder = os.environ.get("STEPWELL_BENCH_DATA")
    return Path(folder).rglob("*.md") if folder else iter(())


def _made(chooser: random.Random, *, chinese: bool) -> str:
    lines, size = [], 0
    while size < (CHARS // 2 if chinese else CHARS):
        if chinese and chooser.random() < 0.8:
            line = "".join(chooser.choices(HAN, k=36)) + "。"
        else:
            line = " ".join(chooser.choices(LATIN, k=14)) + "."
        lines.append(line)
        size += len(line)
    return "\n".join(lines)
