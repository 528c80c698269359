"""What the tests of reports share: a hostile text, and folders as runs leave them."""

import html
import json
import re
from pathlib import Path

EVIL = '<script>window.pwned = "{}"</script>'


def write_run(folder: Path, records: list[dict], scores: object = None) -> Path:
    folder.mkdir(parents=True)
    (folder / "metrics.jsonl").write_text("".join(json.dumps(record) + "\n" for record in records))
    if scores is not None:
        (folder / "scores.json").write_text(json.dumps(scores))
    return folder


def text_of(page: str) -> str:
    """What a reader sees."""
    body = re.sub(r"<(script|style).*?</\1>", "", page, flags=re.DOTALL)
    return html.unescape(re.sub(r"<[^>]*>", "", body))
