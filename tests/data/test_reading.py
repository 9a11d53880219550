"""JSON and TOML as they are read: what is refused is refused in one line that names the place."""

import pytest

from pipedec_cli.data.errors import UserError
from pipedec_cli.data.reading import DEEPEST, as_json, read_json, read_toml, real
from pipedec_cli.data.records import Manifest, Segmentation

DEEP = "[" * 100_000
LONG = "9" * 5_000


@pytest.mark.parametrize(
    ("shape", "content", "message"),
    [
        (Manifest, b"{", "a.json:1: not JSON: "),
        (Manifest, b'{"a": "b\n', "not JSON: Invalid control character at column 9"),
        (Manifest, b'{\n"a": \xff}', "a.json: not UTF-8: byte 0xff"),
        (
            Manifest,
            b"[1]",
            "`pipedec x` writes: expected an object, found a list; run `pipedec x` again",
        ),
        (Manifest, DEEP.encode(), "nested more than 100 deep"),
        (Manifest, b'{"examples": ' + LONG.encode() + b"}", "Exceeds the limit"),
        (
            Manifest,
            b'{"settings": [1]}',
            "field 'settings': expected an object, found a list",
        ),
        (
            Manifest,
            b'{"settings": {"limit": "many"}}',
            "'settings.limit': expected a whole number, found",
        ),
        (Manifest, b'{"examples": -1}', "'examples' does not fit: Expected `int` >= 0"),
        (
            Segmentation,
            b'{"level": "phrase", "separators": [], "joiner": " ", "sub_max": 1}',
            "'sub_max'",
        ),
        (Segmentation, b"{}", "field 'level' is missing; run `pipedec x` again"),
        (
            Manifest,
            b'{"stopped": {"lines": 1}}',
            "field 'stopped.sha256' is missing; run",
        ),
        (
            Segmentation,
            b'{"level": "word", "separators": [], "joiner": " "}',
            "'level' does not fit",
        ),
    ],
)
def test_what_is_not_of_the_shape_is_refused(tmp_path, shape, content, message):
    path = tmp_path / "a.json"
    path.write_bytes(content)
    with pytest.raises(UserError) as raised:
        read_json(path, shape, "pipedec x")
    assert message in str(raised.value)
    assert str(raised.value).startswith(str(path))
    assert "\n" not in str(raised.value)


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
    with pytest.raises(UserError, match=r"a\.toml: not a TOML file"):
        read_toml(path)


def test_values_may_be_nested_as_deep_as_they_can_be_written_again():
    nested = b"[" * DEEPEST + b"]" * DEEPEST
    assert as_json(nested, "a")
    with pytest.raises(
        UserError, match="a:7: not JSON that can be read: nested more than 100 deep"
    ):
        as_json(b"[" + nested + b"]", "a", 7)


def test_a_loop_of_links_leads_nowhere_and_raises_nothing(tmp_path):
    (tmp_path / "a").symlink_to(tmp_path / "b")
    (tmp_path / "b").symlink_to(tmp_path / "a")
    (tmp_path / "c").symlink_to(tmp_path)
    assert real(tmp_path / "c") == real(tmp_path)
    assert real(tmp_path / "a" / "x").name == "x"
