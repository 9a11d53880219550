"""Streams of chat completions: an object comes value by value, and its pieces are the whole answer."""

import json

import pytest

from tests.jobs.test_fields import SCHEMA
from tests.objects.test_so_far import stands_in
from tests.serve.test_serve import SOURCES, chat, form_of, models  # noqa: F401

pytestmark = pytest.mark.extra("uvicorn")


def test_an_object_is_streamed_by_its_values(chat):  # noqa: F811
    pieces = 0
    for source in SOURCES:
        asked = {"response_format": form_of(SCHEMA)}
        whole = chat.chat(source, **asked)
        rows = {"stream_options": {"pipedec_rows": True}}
        *parts, _ = chat.chat(source, stream=True, extra_body=rows, **asked)
        texts = [part.choices[0].delta.content for part in parts]
        assert "".join(texts) == whole.choices[0].message.content
        pieces += len([text for text in texts if text])
        objects = [
            part.pipedec_object for part in parts if hasattr(part, "pipedec_object")
        ]
        values = whole.choices[0].message.content
        for earlier, later in zip(
            objects, [*objects[1:], json.loads(values)], strict=True
        ):
            assert stands_in(earlier, later)
    assert pieces > len(SOURCES), "some come in pieces"


def test_the_tokens_of_a_choice_that_is_taken_as_a_whole_are_its_text(chat):  # noqa: F811
    schema = {"properties": {"food": {"enum": ["Thai food", "pub food"]}}}
    rows = {"stream_options": {"pipedec_rows": True}}
    told = {"response_format": form_of({"type": "object", **schema})}
    *parts, _ = chat.chat(SOURCES[0], stream=True, extra_body=rows, **told)
    tokens = [token for part in parts for token in part.pipedec_rows]
    text = "".join(token["text"] for token in tokens)
    assert text.replace(" ", "") in ("Thaifood", "pubfood", "none")
    assert [token["ended"] for token in tokens].count(True) == 1
    assert tokens[-1]["ended"]
