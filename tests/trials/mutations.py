"""What chance does to a file that was whole: to its bytes, or to a value of the JSON that it holds."""

import gzip
import json
from random import Random
from typing import Any, Final

#: What a file may hold that nobody meant.
_SNIPPETS: Final = (
    *(b"\0", b"\xef\xbb\xbf", b"\r", b"\r\n", b"\n", b"\n\n", b"\xff", b"\xed\xa0\x80", b"\xc3"),
    *(b"\x1b[2J\x1b[31m", b"\xc2\x9b31m", "\u202e\u2028".encode(), b"\\ud800", b"\\u0000", b"\\u001b[2J"),
    *(b"9" * 5_000, b"1e999", b"-1", b"NaN", b"null", b"[" * 100_000, b'{"a":' * 5_000, b"[[" * 40),
    *(b'"', b"'", b",", b";", b"\t", b"}", b"]", b"{", b":", b"=", b" ", b"x" * 2_000),
    # Of chat templates:
    *(b"{{ 'x' * 10**10 }}", b"{% for n in range(10**9) %}{% endfor %}", b"{{ a.b.c }}", b"{{"),
)
#: What may stand in JSON where something else belongs.
_VALUES: Final = (
    *(None, True, False, 0, -1, 1, 3, 0.5, 1e308, float("inf"), float("nan"), 2**63, 10**400, "", " "),
    *("x", "1", [], {}, [[]], [None], [1], [""], ["a", 1], {"a": 1}, {"": []}, "\ud800", "\0", "\x1b[2J"),
    *("\n", "\u202e", "train", "2024-01-01", "x" * 3_000, "a b " * 500, [["x"] * 3] * 3),
    json.loads("[" * 60 + "]" * 60),
)


def hurt(content: bytes, name: str, chance: Random) -> bytes:
    """The content after one to three mutations."""
    if name.endswith(".gz"):
        if chance.random() < 0.5:
            return gzip.compress(hurt(gzip.decompress(content), name.removesuffix(".gz"), chance))
    elif name.endswith(".safetensors") and chance.random() < 0.6:
        size = 8 + int.from_bytes(content[:8], "little")
        header = _hurt_json(content[8:size], chance)
        return len(header).to_bytes(8, "little") + header + content[size:]
    elif name.endswith((".json", ".jsonl", ".txt")) and chance.random() < 0.6:
        return _hurt_json(content, chance)
    for _ in range(chance.choice((1, 1, 2, 3))):
        content = chance.choice(_OF_BYTES)(content, chance)
    return content


def _flip(content: bytes, chance: Random) -> bytes:
    if not content:
        return content
    made, place = bytearray(content), chance.randrange(len(content))
    made[place] ^= 1 << chance.randrange(8)
    return bytes(made)


def _cut_short(content: bytes, chance: Random) -> bytes:
    return content[: chance.randint(0, len(content))]


def _insert(content: bytes, chance: Random) -> bytes:
    place = chance.choice((0, len(content), chance.randint(0, len(content))))
    return content[:place] + chance.choice(_SNIPPETS) + content[place:]


def _leave_out(content: bytes, chance: Random) -> bytes:
    start, stop = _span(content, chance)
    return content[:start] + content[stop:]


def _repeat(content: bytes, chance: Random) -> bytes:
    start, stop = _span(content, chance)
    return content[:stop] + content[start:stop] + content[stop:]


def _swap(content: bytes, chance: Random) -> bytes:
    """Two words, numbers or marks change their places."""
    words = content.split(b" ")
    first, second = chance.randrange(len(words)), chance.randrange(len(words))
    words[first], words[second] = words[second], words[first]
    return b" ".join(words)


def _change_lines(content: bytes, chance: Random) -> bytes:
    """Some lines end in another way, or lines come in another order."""
    lines = content.split(b"\n")
    if chance.random() < 0.3:
        chance.shuffle(lines)
        return b"\n".join(lines)
    return b"".join(line + chance.choice((b"\n", b"\r\n", b"\n", b"\n\n")) for line in lines)


_OF_BYTES: Final = (_flip, _cut_short, _insert, _insert, _leave_out, _repeat, _swap, _change_lines)


def _span(content: bytes, chance: Random) -> tuple[int, int]:
    start = chance.randint(0, len(content))
    return start, chance.randint(start, min(len(content), start + chance.choice((1, 10, 300))))


def _hurt_json(content: bytes, chance: Random) -> bytes:
    """A value in it is another, is missing, is there twice, or has another name."""
    lines = content.split(b"\n")
    texts = [content, *chance.sample(lines, min(3, len(lines)))]
    for text in texts:
        try:
            value = json.loads(text)
        except (ValueError, RecursionError):
            continue
        indent = chance.choice((None, 1)) if text is content else None
        dumped = json.dumps(_changed(value, chance), indent=indent)
        if chance.random() < 0.1:
            dumped = dumped.replace("{", '{"source": "twice", "id": "1", ', 1)
        return content.replace(text, dumped.encode("utf-8", "replace"), 1)
    return _insert(content, chance)


def _changed(value: Any, chance: Random) -> Any:
    """A copy in which one value, wherever it stands, is not what it was."""
    if not isinstance(value, dict | list) or not value or chance.random() < 0.15:
        return chance.choice(_VALUES)
    if isinstance(value, list):
        place = chance.randrange(len(value))
        cut = value[:place]
        return chance.choice((cut, value + cut, [*cut, _changed(value[place], chance), *value[place + 1 :]]))
    name = chance.choice(list(value))
    what = chance.random()
    if what < 0.15:
        return {key: one for key, one in value.items() if key != name}
    if what < 0.25:
        other = chance.choice(("", "id", "prediction", "source", "\ud800", "\x1b[2J", "x" * 500))
        return {other if key == name else key: one for key, one in value.items()}
    return value | {name: _changed(value[name], chance)}
