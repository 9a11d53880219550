"""The bodies of requests to `pipedec serve`: what is read of them, what is refused by its place, and what is warned of."""

import gzip
import json

import pytest

from pipedec_cli.serve.body import RefusalError
from pipedec_cli.serve.chat import ChatExchange
from tests.serve.test_serve import chat, models, pipelined, until  # noqa: F401

pytestmark = pytest.mark.extra("uvicorn")

GOOD = {"model": "pipelined", "prompt": "a"}
WHOLE = "A.; B.; C.; D."


def ask(made, body, path="completions", **headers):
    """Status and answer of a body, which is JSON or made of it, and its line of the log."""
    content = body if isinstance(body, bytes) else json.dumps(body).encode()
    lines = len(made.log)
    status, _, answer = made.raw("POST", f"/v1/{path}", content, **headers)
    until(lambda: len(made.log) > lines)
    return status, json.loads(answer), made.log[-1]


@pytest.mark.parametrize(
    "body",
    [
        b'{"model":"nope","model":"pipelined","prompt":"a"}',
        b'{"model":"pipelined","prompt":"a","stream_options":{"pipedec_rows":true,"pipedec_rows":false}}',
        b'{"model":"pipelined","prompt":"a","response_format":{"type":"text","a":{"b":1,"b":2}}}',
    ],
)
def test_a_body_with_a_key_twice_is_refused(pipelined, body):  # noqa: F811
    assert ask(pipelined, body)[0] == 400


@pytest.mark.parametrize(
    ("body", "place"),
    [
        (b'{"model":"pipelined",\n"prompt":"a\xff"}', "position 34"),
        (json.dumps(GOOD).encode("utf-16"), "position 1"),
        (b'{"model":"pipelined",\n"prompt":"a",}', "body:2"),
        (b'{"model":"pipelined",\n"prompt":"a\x00"}', "column 12"),
        (b'{"model":"pipelined","prompt":"\xed\xa0\x80"}', "position 32"),
    ],
)
def test_what_is_no_json_is_refused_with_its_place(pipelined, body, place):  # noqa: F811
    status, answer, _ = ask(pipelined, body)
    assert status == 400
    assert place in answer["error"]["message"]


def test_a_byte_order_mark_is_passed_over(pipelined):  # noqa: F811
    status, answer, _ = ask(pipelined, b"\xef\xbb\xbf" + json.dumps(GOOD).encode())
    assert (status, answer["choices"][0]["text"]) == (200, WHOLE)


@pytest.mark.parametrize("coding", ["gzip", "br", None])
@pytest.mark.parametrize("is_compressed", [True, False])
def test_a_compressed_body_is_refused_by_its_header_or_its_bytes(
    pipelined,  # noqa: F811
    coding,
    is_compressed,
):
    content = json.dumps(GOOD).encode()
    headers = {"Content-Encoding": coding} if coding else {}
    status, answer, _ = ask(
        pipelined, gzip.compress(content) if is_compressed else content, **headers
    )
    if not coding and not is_compressed:
        assert status == 200
        return
    assert (status, answer["error"]["param"]) == (415, None)
    assert "compressed" in answer["error"]["message"]


def test_a_body_with_identity_for_its_encoding_is_read(pipelined):  # noqa: F811
    assert ask(pipelined, GOOD, **{"Content-Encoding": "Identity"})[0] == 200


def test_half_a_surrogate_pair_in_a_text_is_replaced_with_a_warning(pipelined, chat):  # noqa: F811
    wanted = ask(pipelined, {**GOOD, "prompt": "a\ufffd"})[1]["choices"][0]["text"]
    status, answer, entry = ask(pipelined, {**GOOD, "prompt": "a\ud83d"})
    assert (status, answer["choices"][0]["text"]) == (200, wanted)
    assert "prompt" in answer["pipedec_warning"] and "U+FFFD" in entry["warning"]
    messages = [{"role": "user", "content": "a\ude00"}]
    body = {"model": "chat", "messages": messages, "max_tokens": 4}
    status, answer, _ = ask(chat, body, "chat/completions")
    assert (status, "messages" in answer["pipedec_warning"]) == (200, True)
    assert (
        "pipedec_warning" not in ask(pipelined, {**GOOD, "prompt": "a\ud83d\ude00"})[1]
    ), "a whole pair"


@pytest.mark.parametrize(
    ("more", "param"),
    [
        ({"stop": "\ud800"}, "stop"),
        ({"response_format": {"type": "json_object", "\udfff": 1}}, "response_format"),
        ({"max_tokens": float("nan")}, "max_tokens"),
        (
            {"response_format": {"type": "json_object", "minimum": float("inf")}},
            "response_format",
        ),
        ({"\ud800": 1}, "\ufffd"),
        ({"colour": 1}, "colour"),
        ({"c" * 999: 1}, "c" * 80),
        ({"temperature": 0.7}, "temperature"),
        ({"temperature": 1, "top_p": 0.9}, "top_p"),
        ({"temperature": 1, "presence_penalty": 1}, "presence_penalty"),
        ({"temperature": 2}, "temperature"),
        ({"logprobs": 9}, "logprobs"),
        ({"stream_options": {"colour": 1}}, "stream_options.colour"),
        ({"model": None}, "model"),
        ({"prompt": "name[ " * 2_000}, None),
    ],
)
def test_a_refusal_and_its_line_of_the_log_name_the_parameter(pipelined, more, param):  # noqa: F811
    status, answer, entry = ask(pipelined, GOOD | more)
    assert (status, answer["error"]["param"], entry.get("param")) == (400, param, param)


@pytest.mark.parametrize("value", [1, 1.0])
def test_the_default_temperature_is_taken_with_a_warning(pipelined, value):  # noqa: F811
    answer = pipelined.client.completions.create(**GOOD, temperature=value)
    assert answer.choices[0].text == WHOLE
    assert "temperature" in answer.pipedec_warning
    parts = list(
        pipelined.client.completions.create(**GOOD, temperature=value, stream=True)
    )
    assert "".join(part.choices[0].text for part in parts) == WHOLE
    assert "temperature" in parts[0].pipedec_warning
    assert not hasattr(
        pipelined.client.completions.create(**GOOD, temperature=0), "pipedec_warning"
    )


@pytest.mark.parametrize(
    ("more", "param"),
    [
        ({"top_logprobs": 2}, "top_logprobs"),
        *(
            (
                {
                    "response_format": {
                        "type": "json_schema",
                        "json_schema": {"schema": {}, "strict": strict},
                    }
                },
                "response_format",
            )
            for strict in ("true", 1)
        ),
    ],
)
def test_a_wish_that_would_have_no_effect_is_refused(more, param):
    with pytest.raises(RefusalError) as refusal:
        ChatExchange(json.dumps(GOOD | more).encode(), is_chat=False)
    assert (refusal.value.status, refusal.value.param) == (400, param)


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("max_new_tokens", "send max_tokens"),
        ("n_predict", "send max_tokens"),
        ("guided_json", "send response_format"),
        ("Model", "send model"),
        ("web_search_options", "leave it out"),
        ("options", "leave it out"),
        ("cache_prompt", "leave it out"),
    ],
)
def test_a_name_that_is_unknown_is_answered_with_the_one_that_is_meant(name, meant):
    with pytest.raises(RefusalError) as refusal:
        ChatExchange(json.dumps(GOOD | {name: 1}).encode(), is_chat=False)
    assert refusal.value.param == name
    assert str(refusal.value).partition("; ")[2].startswith(meant)


@pytest.mark.parametrize(
    "more",
    [
        {"prompt": ["a", "b"]},
        {"prompt": " "},
        {"stop": 5},
        {"stream": "true"},
        {"max_tokens": "5"},
        {"logprobs": True, "top_logprobs": 20},
        {"response_format": "json"},
    ],
)
def test_a_value_that_does_not_fit_is_refused_with_what_to_send(more):
    with pytest.raises(RefusalError) as refusal:
        ChatExchange(json.dumps(GOOD | more).encode(), is_chat=False)
    assert refusal.value.param == [*more][-1]
    assert "; send " in str(refusal.value)
