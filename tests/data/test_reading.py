"""JSON and TOML as they are read: what is refused is refused in one line that names the place."""

import pytest

from pipedec_cli.data.reading import DEEPEST, as_json, read_json, read_toml, real
from pipedec_cli.data.records import Manifest, Segmentation
from tests.words import refusing

DEEP = "[" * 100_000
LONG = "9" * 5_000


@pytest.mark.parametrize(
    ("shape", "content"),
    [
        (Manifest, b"{"),
        (Manifest, b'{"a": "b\n'),
        (Manifest, b'{\n"a": \xff}'),
        (Manifest, b"[1]"),
        (Manifest, DEEP.encode()),
        (Manifest, b'{"examples": ' + LONG.encode() + b"}"),
        (Manifest, b'{"settings": [1]}'),
        (Manifest, b'{"settings": {"limit": "many"}}'),
        (Manifest, b'{"examples": -1}'),
        (
            Segmentation,
            b'{"level": "phrase", "separators": [], "joiner": " ", "sub_max": 1}',
        ),
        (Segmentation, b"{}"),
        (Manifest, b'{"stopped": {"lines": 1}}'),
        (Segmentation, b'{"level": "word", "separators": [], "joiner": " "}'),
    ],
)
def test_what_is_not_of_the_shape_is_refused(tmp_path, shape, content):
    path = tmp_path / "a.json"
    path.write_bytes(content)
    with refusing():
        read_json(path, shape, "pipedec x")


@pytest.mark.parametrize(
    "content",
    [
        f"a = {DEEP}",
        f"a = {LONG}",
        "a = 1\na = 2",
        "a =",
        "a = 2024-13-40",
        "a\0 = 1",
        "\ufeff",
    ],
)
def test_what_is_no_toml_is_refused(tmp_path, content):
    path = tmp_path / "a.toml"
    path.write_text(content, encoding="utf-8")
    with refusing():
        read_toml(path)


def test_values_may_be_nested_as_deep_as_they_can_be_written_again():
    nested = b"[" * DEEPEST + b"]" * DEEPEST
    assert as_json(nested, "a")
    with refusing():
        as_json(b"[" + nested + b"]", "a", 7)


def test_a_loop_of_links_leads_nowhere_and_raises_nothing(tmp_path):
    (tmp_path / "a").symlink_to(tmp_path / "b")
    (tmp_path / "b").symlink_to(tmp_path / "a")
    (tmp_path / "c").symlink_to(tmp_path)
    assert real(tmp_path / "c") == real(tmp_path)
    assert real(tmp_path / "a" / "x").name == "x"
