"""The frame of every page: one HTML file, made of sections, that needs no other file and no network.

The data are only text on it. Templates escape strings and show invisible characters as
symbols; data for scripts cannot end their block; and the policy of the page allows the
scripts of this folder and nothing else.
"""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from pipedec_cli.view.console import visible

if TYPE_CHECKING:
    from jinja2 import Environment
    from markupsafe import Markup

_HERE: Final = Path(__file__).parent
#: Characters that could end a block of data, begin markup in it, or break a line of a
#: script.
_ESCAPES: Final = {ord(sign): f"\\u{ord(sign):04x}" for sign in "<>&\u2028\u2029"}


@dataclass(frozen=True, slots=True)
class Section:
    """A part of a page."""

    name: str  # the id of its element
    title: str
    body: Markup  # made by `template`
    data: object | None = None  # plain values, JSON in the block ``#data-name``
    script: str | None = None  # a file in scripts/ that finds element and data


def render(title: str, sections: Sequence[Section]) -> str:
    """The whole page as HTML, with a table of contents if there are several sections.

    Its policy, which browsers heed, allows the sections' scripts and nothing else.
    """
    from markupsafe import Markup

    names = dict.fromkeys(section.script for section in sections if section.script)
    scripts = [_text(_HERE / "scripts" / name) for name in names]
    styles = [_text(path) for path in sorted(_HERE.glob("*.css"))]
    allowed = " ".join(map(_hash, scripts)) or "'none'"
    policy = f"default-src 'none'; style-src 'unsafe-inline'; img-src data:; script-src {allowed}"
    blocks = []
    for section in sections:
        data = None if section.data is None else block(section.data)
        blocks.append((section, data))
    return template(
        "page.html",
        title=title,
        policy=policy,
        style=Markup("".join(styles)),  # noqa: S704  # our own files, as are the scripts
        sections=blocks,
        scripts=list(map(Markup, scripts)),
    )


def _text(path: Path) -> str:
    return path.read_text(encoding="utf-8")


def _hash(script: str) -> str:
    """What the policy of a page calls a script that may run."""
    digest = sha256(script.encode()).digest()
    return f"'sha256-{b64encode(digest).decode()}'"


def template(name: str, **values: object) -> Markup:
    """A template of templates/ with its values: strings are escaped and made `visible`, Markup is taken as it is."""
    from markupsafe import Markup

    return Markup(_environment().get_template(name).render(values))  # noqa: S704


@cache
def _environment() -> Environment:
    """Jinja with our templates: strings are escaped and made visible, and a name without a value is an error."""
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    return Environment(
        loader=FileSystemLoader(_HERE / "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=_shown,
    )


def _shown(value: Any) -> Any:
    """The value with every string in it made `visible`; Markup stays."""
    if isinstance(value, str):
        return value if hasattr(value, "__html__") else visible(value)
    if isinstance(value, Mapping):
        return {_shown(key): _shown(entry) for key, entry in value.items()}
    if isinstance(value, list | tuple):
        return list(map(_shown, value))
    return value


def block(data: object) -> Markup:
    """Any data as JSON that a script element can hold."""
    from markupsafe import Markup

    text = json.dumps(_shown(data), ensure_ascii=False, separators=(",", ":"))
    return Markup(text.translate(_ESCAPES))  # noqa: S704
