"""``/v1/responses``: texts and objects are those of chat completions, whole and as events that OpenAI's own client reads."""

import json
from typing import Literal

import openai
import pytest
from pydantic import BaseModel

from pipedec_cli.serve.body import RefusalError
from pipedec_cli.serve.responses import ResponsesExchange
from tests.jobs.test_fields import SCHEMA
from tests.serve.test_serve import SOURCES, chat, form_of, models  # noqa: F401

pytestmark = pytest.mark.extra("uvicorn")

FORM = {"type": "json_schema", "name": "x", "schema": SCHEMA}


class Pub(BaseModel):
    name: str
    food: Literal["Thai", "Greek"] | None


@pytest.mark.parametrize(
    ("asked", "form"), [({}, {}), ({"format": FORM}, form_of(SCHEMA))]
)
def test_an_answer_is_that_of_chat_completions(chat, asked, form):  # noqa: F811
    more = {"response_format": form} if form else {}
    wanted = chat.chat(SOURCES[0], **more)
    made = chat.client.responses.create(model="chat", input=SOURCES[0], text=asked)
    is_cut = wanted.choices[0].finish_reason == "length"
    assert made.output_text == wanted.choices[0].message.content
    assert made.status == ("incomplete" if is_cut else "completed")
    assert made.usage.input_tokens == wanted.usage.prompt_tokens
    assert made.usage.output_tokens == wanted.usage.completion_tokens
    assert made.usage.input_tokens_details.cached_tokens > 0
    assert (getattr(made, "pipedec_spans", None) is None) == (not form)


def test_a_stream_is_put_together_by_the_client(chat):  # noqa: F811
    for asked in ({}, {"format": FORM}):
        wanted = chat.client.responses.create(
            model="chat", input=SOURCES[0], text=asked
        )
        parts = chat.client.responses.create(
            model="chat", input=SOURCES[0], text=asked, stream=True
        )
        events = [*parts]
        kinds = [event.type for event in events]
        deltas = [event.delta for event in events if event.type.endswith("text.delta")]
        assert kinds[:4] == [
            "response.created",
            "response.in_progress",
            "response.output_item.added",
            "response.content_part.added",
        ]
        assert "".join(deltas) == wanted.output_text
        assert [event.sequence_number for event in events] == [*range(len(events))]
        end = events[-1]
        assert end.type == f"response.{wanted.status}"
        assert end.response.output_text == wanted.output_text
        assert end.response.usage.total_tokens == wanted.usage.total_tokens


def test_an_object_is_parsed_into_a_class_by_the_client(chat):  # noqa: F811
    made = chat.client.responses.parse(
        model="chat", input=SOURCES[0], text_format=Pub, max_output_tokens=90
    )
    assert isinstance(made.output_parsed, Pub)
    with chat.client.responses.stream(
        model="chat", input=SOURCES[0], text_format=Pub, max_output_tokens=90
    ) as stream:
        for _ in stream:
            pass
        assert stream.get_final_response().output_parsed == made.output_parsed


def test_instructions_and_messages_are_the_turns_of_a_chat(chat):  # noqa: F811
    turns = [("system", "Be brief."), ("user", SOURCES[0]), ("assistant", "It is.")]
    wanted = chat.chat(SOURCES[1], *turns).choices[0].message.content
    said = {"type": "output_text", "text": "It is.", "annotations": []}
    messages = [
        {"role": "user", "content": SOURCES[0]},
        {"type": "message", "role": "assistant", "content": [said], "id": "msg_1"},
        {"role": "user", "content": [{"type": "input_text", "text": SOURCES[1]}]},
    ]
    made = chat.client.responses.create(
        model="chat", input=messages, instructions="Be brief."
    )
    assert made.output_text == wanted


@pytest.mark.parametrize(
    ("more", "param"),
    [
        ({"input": " "}, "input"),
        ({"input": []}, "input"),
        ({"input": [{"role": "user", "content": ""}]}, "input"),
        ({"input": [{"role": "assistant", "content": "a"}]}, "input"),
        (
            {"input": [{"role": "user", "content": [{"type": "input_image"}]}]},
            "input[0].content[0].type",
        ),
        (
            {"input": [{"type": "function_call", "role": "user", "content": "a"}]},
            "input[0].type",
        ),
        ({"tools": [{"type": "web_search"}]}, "tools"),
        ({"tool_choice": "required"}, "tool_choice"),
        ({"previous_response_id": "resp_1"}, "previous_response_id"),
        ({"conversation": "conv_1"}, "conversation"),
        ({"background": True}, "background"),
        ({"truncation": "auto"}, "truncation"),
        ({"include": ["reasoning.encrypted_content"]}, "include"),
        ({"prompt": {"id": "pmpt_1"}}, "prompt"),
        ({"top_logprobs": 3}, "top_logprobs"),
        ({"text": {"format": {"type": "grammar"}}}, "text.format"),
        ({"text": {"verbosity": "low"}}, "text.verbosity"),
        ({"max_output_tokens": 0}, "max_output_tokens"),
        ({"temperature": 0.5}, "temperature"),
        ({"messages": []}, "messages"),
    ],
)
def test_what_is_not_served_is_refused_by_name(more, param):
    body = {"model": "m", "input": "a"} | more
    with pytest.raises(RefusalError) as refusal:
        ResponsesExchange(json.dumps(body).encode())
    assert (refusal.value.status, refusal.value.param) == (400, param)


def test_values_without_effect_are_taken(chat):  # noqa: F811
    plain = chat.client.responses.create(model="chat", input="a")
    made = chat.client.responses.create(
        model="chat",
        input="a",
        store=True,
        metadata={"a": "b"},
        truncation="disabled",
        background=False,
        tool_choice="auto",
        parallel_tool_calls=True,
        reasoning={"effort": "low"},
        top_p=1,
        include=[],
        text={"verbosity": "medium"},
    )
    assert made.output_text == plain.output_text


def test_a_schema_that_cannot_be_read_is_a_fault_of_the_format(chat):  # noqa: F811
    form = FORM | {"schema": {"properties": {"a": {"$ref": "#/$defs/A"}}}}
    with pytest.raises(openai.BadRequestError) as error:
        chat.client.responses.create(model="chat", input="a", text={"format": form})
    assert error.value.param.startswith("text.format")
