"""Forced tool calls: the arguments are the object of the function's parameters, as OpenAI's own client reads them."""

import json

import openai
import pytest

from pipedec_cli.serve.body import RefusalError
from pipedec_cli.serve.chat import ChatExchange
from tests.jobs.test_fields import SCHEMA
from tests.serve.test_serve import SOURCES, chat, form_of, models  # noqa: F401

pytestmark = pytest.mark.extra("uvicorn")


def tool_of(name, schema=SCHEMA, **more):
    return {
        "type": "function",
        "function": {"name": name, "parameters": schema, **more},
    }


TOOLS = [tool_of("note", description="Notes a pub."), tool_of("other")]
NOTE = {"type": "function", "function": {"name": "note"}}


@pytest.mark.parametrize(
    ("tools", "choice", "finish"),
    [(TOOLS, NOTE, "stop"), (TOOLS[:1], "required", "tool_calls")],
)
def test_a_forced_call_has_the_object_for_its_arguments(chat, tools, choice, finish):  # noqa: F811
    wanted = chat.chat(SOURCES[0], response_format=form_of(SCHEMA)).choices[0]
    (made,) = chat.chat(SOURCES[0], tools=tools, tool_choice=choice).choices
    (call,) = made.message.tool_calls
    assert (made.message.content, made.finish_reason) == (None, finish)
    assert (call.type, call.function.name) == ("function", "note")
    assert call.id
    assert call.function.arguments == wanted.message.content


def test_a_streamed_call_is_put_together_by_the_client(chat):  # noqa: F811
    wanted = chat.chat(SOURCES[0], response_format=form_of(SCHEMA)).choices[0]
    messages = [{"role": "user", "content": SOURCES[0]}]
    strict = [tool_of("note", strict=False)]
    with chat.client.chat.completions.stream(
        model="chat", messages=messages, tools=strict, tool_choice="required"
    ) as events:
        for _ in events:
            pass
        (choice,) = events.get_final_completion().choices
    (call,) = choice.message.tool_calls
    assert call.function.arguments == wanted.message.content
    assert (call.function.name, choice.finish_reason) == ("note", "tool_calls")
    assert choice.message.role == "assistant" and not choice.message.content


def test_without_a_choice_tools_are_no_matter(chat):  # noqa: F811
    wanted = chat.chat(SOURCES[0]).choices[0].message.content
    (made,) = chat.chat(SOURCES[0], tools=TOOLS, tool_choice="none").choices
    assert made.message.content == wanted and not made.message.tool_calls


@pytest.mark.parametrize(
    ("more", "param"),
    [
        ({"tools": TOOLS}, "tool_choice"),
        ({"tools": TOOLS, "tool_choice": "auto"}, "tool_choice"),
        ({"tools": TOOLS, "tool_choice": "required"}, "tool_choice"),
        ({"tool_choice": "required"}, "tool_choice"),
        (
            {"tools": TOOLS, "tool_choice": NOTE | {"function": {"name": "no"}}},
            "tool_choice",
        ),
        ({"tools": TOOLS, "tool_choice": {"type": "allowed_tools"}}, "tool_choice"),
        ({"tools": [{"type": "web_search"}]}, "tools[0].type"),
        ({"tools": [tool_of("a b")], "tool_choice": "required"}, None),
        ({"tools": [tool_of("a", None)], "tool_choice": "required"}, None),
        ({"tools": [tool_of("a", {})], "tool_choice": "required"}, "tools"),
        (
            {
                "tools": TOOLS,
                "tool_choice": NOTE,
                "response_format": {"type": "json_object"},
            },
            "response_format",
        ),
        ({"functions": [{"name": "a"}]}, "functions"),
    ],
)
def test_what_leaves_a_choice_to_the_model_is_refused_by_name(more, param):
    body = {"model": "m", "messages": [{"role": "user", "content": "a"}]} | more
    with pytest.raises(RefusalError) as refusal:
        ChatExchange(json.dumps(body).encode(), is_chat=True)
    assert refusal.value.status == 400
    if param is not None:
        assert refusal.value.param == param
    else:
        assert refusal.value.param.startswith("tools[0].function")


def test_a_schema_that_cannot_be_read_is_a_fault_of_the_tools(chat):  # noqa: F811
    broken = [tool_of("note", {"properties": {"a": {"$ref": "#/$defs/A"}}})]
    with pytest.raises(openai.BadRequestError) as error:
        chat.chat("a", tools=broken, tool_choice="required")
    assert error.value.param.startswith("tools")
