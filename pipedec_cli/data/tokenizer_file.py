"""What a tokenizer.json may make of a text. It is looked at before the tokenizer is loaded, because loading uses it."""

from __future__ import annotations

import base64
import json
from math import prod
from pathlib import Path
from typing import Any, Final

#: The most characters that a file may make of a single one: NFKC, in T5's and many others, makes up to 33 bytes.
MOST: Final = 1_000
#: The most characters of JSON of what stands around each text.
_AROUND: Final = 20_000


def check_growth(name: str, *, local: bool) -> None:
    """Refuse, with a ValueError, a folder's or hub model's tokenizer.json by which a short text fills the memory."""
    from transformers.utils import cached_file

    found = cached_file(
        name, "tokenizer.json", local_files_only=local, _raise_exceptions_for_missing_entries=False
    )
    if found:
        check_content(Path(found).read_bytes())


def check_content(tokenizer: bytes) -> None:
    """The same of the content of a tokenizer.json."""
    content = json.loads(tokenizer)
    if not isinstance(content, dict):  # the tokenizer has other files, or cannot be loaded
        return
    for part in ("normalizer", "decoder"):
        if _growth(content.get(part)) > MOST:
            raise ValueError(f"the {part} in tokenizer.json makes more than {MOST:,} characters of one")
    if len(json.dumps(content.get("post_processor"))) > _AROUND:
        raise ValueError("the post_processor in tokenizer.json puts too much around a text")


def _growth(step: Any) -> int:
    """The most characters that a step makes of one; steps that follow one another multiply."""
    if isinstance(step, list):
        return prod(map(_growth, step))
    if not isinstance(step, dict):
        return 1
    longest = max(len(str(step.get(name, ""))) for name in ("content", "prepend"))
    if charsmap := step.get("precompiled_charsmap"):
        table = base64.b64decode(charsmap)
        texts = table[4 + int.from_bytes(table[:4], "little") :]
        longest = max(map(len, texts.split(b"\0")))
    return max(1, longest) * prod(_growth(step.get(name)) for name in ("normalizers", "decoders"))
