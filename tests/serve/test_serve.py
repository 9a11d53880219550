"""`pipedec serve`, asked by OpenAI's own client: the texts are those of `pipedec generate`, and nobody hurts another."""

import json
import os
import re
import shutil
import signal
import socket
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import partial
from itertools import product

import jsonschema
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import structs

from pipedec_cli.data.fields import Field
from pipedec_cli.data.records import Segmentation
from pipedec_cli.decoding.decoder import load
from pipedec_cli.decoding.exact import Drafter
from pipedec_cli.model.checkpoint import load_checkpoint, save_checkpoint
from pipedec_cli.objects import rows
from pipedec_cli.pipeline.decode import Finished, Stepped, decode
from pipedec_cli.pipeline.grid import Method
from pipedec_cli.pipeline.schedule import Fixed
from pipedec_cli.serve.service import FullError, Request, Service, settled
from pipedec_cli.serve.settings import ServeSettings
from tests.checkpoints import TOLD, change, tiny_checkpoint
from tests.fakes import BOS, EOS, ScriptedModel
from tests.jobs.test_fields import SCHEMA
from tests.model.chats import foreign
from tests.running import lines_of, refused, run, write_lines
from tests.words import same_words

openai = pytest.importorskip("openai")
pytest.importorskip("uvicorn")
pytestmark = pytest.mark.extra("uvicorn")

SOURCES = [source for source, _ in TOLD]
JSON = "Host: localhost\r\nContent-Type: application/json\r\nContent-Length: "
POST = f"POST /v1/completions HTTP/1.1\r\n{JSON}"


def form_of(schema):
    return {"type": "json_schema", "json_schema": {"name": "x", "schema": schema}}


class Served:
    """A server in a thread of this process, its client and its log."""

    def has(self, running, waiting):
        """Whether so many requests run and wait."""
        service = self.service
        return (len(service.running), len(service.waiting)) == (running, waiting)

    def __init__(self, service, keys=(), *, start=True):
        self.service, self.log = service, []
        from pipedec_cli.serve.api import Listener

        self.socket = socket.create_server(("127.0.0.1", 0))
        self.address = self.socket.getsockname()
        self.server = Listener(service, keys, self.note)
        self.run = partial(self.server.run, [self.socket])
        self.thread = threading.Thread(target=self.run)
        self.thread.start() if start else None
        url = f"http://127.0.0.1:{self.address[1]}"
        self.client = openai.OpenAI(
            base_url=f"{url}/v1", api_key="sesame", max_retries=0, timeout=300
        )

    def note(self, event, **fields):
        self.log += [fields] if event == "request" else []

    def text(self, source, **more):
        made = self.client.completions.create(
            model=self.service.name, prompt=source, **more
        )
        return made.choices[0].text

    def chat(self, source, *turns, **more):
        messages = [
            {"role": role, "content": text} for role, text in (*turns, ("user", source))
        ]
        return self.client.chat.completions.create(
            model=self.service.name, messages=messages, **more
        )

    def raw(self, method, path, body=b"", **headers):
        """Status, headers and body of any request."""
        head = {
            "Content-Type": "application/json",
            "Content-Length": len(body),
            "Connection": "close",
        }
        fields = [
            f"{name}: {value}"
            for name, value in ({"Host": "localhost"} | head | headers).items()
        ]
        lines = [f"{method} {path} HTTP/1.1", *fields]
        with socket.create_connection(self.address) as made:
            made.sendall("\r\n".join([*lines, "", ""]).encode() + body)
            answer = b"".join(iter(lambda: made.recv(65_536), b""))
        top, _, rest = answer.partition(b"\r\n\r\n")
        return int(top.split()[1]), top.decode().lower(), rest


@contextmanager
def serving(model, *, keys=(), **more):
    service = Service(ServeSettings(model=model and str(model), device="cpu", **more))
    made = Served(service, keys)
    try:
        yield made
    finally:
        made.server.should_exit = True
        made.thread.join()
        made.client.close()


@contextmanager
def held(service):
    """Decoder calls wait until the block ends, or sets what it is given."""
    gate, step = threading.Event(), service.engine.step
    service.engine.step = lambda rows: gate.wait(300) and step(rows)
    try:
        yield gate
    finally:
        gate.set()
        service.engine.step = step


def until(condition):
    for _ in range(30000):
        if condition():
            return
        time.sleep(0.01)
    raise AssertionError("it did not come about")


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    folder = tmp_path_factory.mktemp("models")
    learnt = load_checkpoint(str(tiny_checkpoint(folder / "pipelined")))
    how = structs.replace(
        learnt.settings, decoder="sequential"
    )  # it writes something, which is enough
    save_checkpoint(replace(learnt, settings=how), folder / "sequential")
    foreign(folder / "chat")
    write_lines(folder / "docs.jsonl", *({"source": source} for source in SOURCES))
    (folder / "schema.json").write_text(json.dumps(SCHEMA), encoding="utf-8")
    return folder


@pytest.fixture(scope="module")
def pipelined(models):
    with serving(models / "pipelined") as made:
        yield made


@pytest.fixture(scope="module")
def chat(models):
    with serving(models / "chat", max_tokens=24) as made:
        yield made


def generated(models, *options):
    """The texts of `pipedec generate`."""
    out = models / "out.jsonl"
    run("generate", models / "docs.jsonl", "--out", out, "--device", "cpu", *options)
    return [line["prediction"] for line in lines_of(out)]


@pytest.mark.parametrize(
    ("model", "how"),
    [
        ("pipelined", {}),
        ("pipelined", {"delay": 1}),
        ("sequential", {}),
        ("pipelined", {"exact": "sequential"}),
        (None, {"exact": "sequential"}),  # drafted by the source
    ],
)
def test_texts_are_those_of_generate_alone_and_with_16_at_a_time(models, model, how):
    how = how | ({"exact": str(models / how["exact"])} if "exact" in how else {})
    given = {"model": str(models / model)} if model else {}
    options = [
        text for name, value in (given | how).items() for text in (f"--{name}", value)
    ]
    wanted = generated(models, *options, "--max-tokens", "24")
    with (
        serving(**(given or {"model": None}), **how, max_tokens=24) as made,
        ThreadPoolExecutor(16) as pool,
    ):
        assert [made.text(source) for source in SOURCES] == wanted
        assert list(pool.map(made.text, SOURCES * 4)) == wanted * 4
        assert made.chat(SOURCES[0]).choices[0].message.content == wanted[0]
        assert [one.id for one in made.client.models.list()] == [made.service.name]
        assert made.client.models.retrieve(made.service.name).owned_by == "pipedec"


def test_a_draft_holds_up_nobody_else(models, monkeypatch):
    gate, guess = threading.Event(), Drafter.guess

    def slow(drafter, source, *others):
        assert source != SOURCES[1] or gate.wait(300)
        return guess(drafter, source, *others)

    monkeypatch.setattr(Drafter, "guess", slow)
    how = {"exact": str(models / "sequential"), "max_tokens": 24}
    with serving(models / "pipelined", **how) as made, ThreadPoolExecutor(1) as pool:
        second = pool.submit(made.text, SOURCES[1])
        until(lambda: made.service.waiting)
        first = made.text(SOURCES[0])
        assert not second.done()
        gate.set()
        wanted = generated(
            models,
            "--model",
            models / "pipelined",
            "--exact",
            models / "sequential",
            "--max-tokens",
            "24",
        )
        assert [first, second.result()] == wanted[:2]


def test_a_drafter_reads_the_whole_chat(chat):
    model, turns = chat.service.decoder, [("user", SOURCES[0]), ("assistant", "It is.")]
    guess = partial(
        Drafter("pipelined", model, model).guess,
        SOURCES[1],
        method=model.method(max_tokens=24),
    )
    text = chat.chat(SOURCES[1], *turns).choices[0].message.content
    assert (
        guess(turns=turns)
        == [*model.text.ids([text])[0], model.checkpoint.eos]
        != guess(turns=())
    )


def test_a_chat_model_reads_a_turn_and_writes_objects_of_any_schema_beside_others(
    models, chat
):
    few = ("--max-tokens", "24", "--model", models / "chat")
    plain = generated(models, "--chat", *few)
    objects = generated(models, "--schema", models / "schema.json", *few)

    def ask(number):
        source, asked = (
            SOURCES[number // 2],
            {"response_format": form_of(SCHEMA)} if number % 2 else {},
        )
        return chat.chat(source, **asked).choices[0].message.content

    with ThreadPoolExecutor(16) as pool:
        answers = list(pool.map(ask, range(2 * len(SOURCES))))
    assert (answers[::2], answers[1::2]) == (plain, objects)
    for text in objects:
        jsonschema.validate(json.loads(text), SCHEMA)


def greedy(model, ids, end):
    """The tokens that transformers write behind a prompt."""
    import torch

    ends = {"eos_token_id": end, "pad_token_id": end}
    prompt = torch.tensor([ids])
    made = model.generate(prompt, do_sample=False, max_new_tokens=24, **ends)
    return made[0, len(ids) :]


def test_earlier_turns_are_read_as_transformers_reads_them(models, chat):
    from transformers import AutoModelForCausalLM, AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(models / "chat")
    model = AutoModelForCausalLM.from_pretrained(models / "chat").eval()
    end = tokenizer.convert_tokens_to_ids("<|im_end|>")
    told = [
        ("system", "The Mill is cheap."),
        ("user", SOURCES[0]),
        ("assistant", "It is. {source} {turn 1}"),
    ]
    for turns in (told[:1], told[1:], told, told + told[1:]):
        messages = [
            {"role": role, "content": text}
            for role, text in [*turns, ("user", SOURCES[1])]
        ]
        ids, _ = chat.service.decoder.text.after(turns).source(SOURCES[1])
        prompt = tokenizer.apply_chat_template(
            messages, add_generation_prompt=True, tokenize=False
        )
        assert tokenizer.decode(ids).replace(" ", "") == prompt.replace(" ", "")
        wanted = greedy(model, ids, end)
        answer = chat.chat(SOURCES[1], *turns)
        assert (
            answer.choices[0].message.content
            == tokenizer.decode(wanted, skip_special_tokens=True).strip()
        )
        assert answer.usage.prompt_tokens == len(ids)
        objects = chat.chat(SOURCES[1], *turns, response_format=form_of(SCHEMA))
        jsonschema.validate(
            values := json.loads(objects.choices[0].message.content), SCHEMA
        )
        told = (
            objects.pipedec_confidence,
            objects.pipedec_forced,
            objects.pipedec_spans,
        )
        assert values and all(one.keys() == values.keys() for one in told)
        assert objects.usage.prompt_tokens > answer.usage.prompt_tokens
    with pytest.raises(
        openai.BadRequestError, match="the last message must be the user's"
    ):
        chat.client.chat.completions.create(model="chat", messages=messages[:-1])
    with pytest.raises(openai.BadRequestError, match="all may take 2048"):
        chat.chat("a", ("system", "name[ " * 2_000))


def test_a_served_text_ends_at_each_end_that_the_models_files_name(models, tmp_path):
    plain = load(models / "chat", device="cpu")
    plain.read_sources(chat=True)
    (longer,) = plain.texts(SOURCES[:1], plain.method(max_tokens=24))
    folder = shutil.copytree(models / "chat", tmp_path / "ends")
    change(folder / "config.json", eos_token_id=[1, longer.grid[0][1][5]])
    wanted = generated(models, "--model", folder, "--chat", "--max-tokens", "24")
    assert len(wanted[0]) < len(longer.text)
    with serving(folder, max_tokens=24) as made:
        assert [
            made.chat(source).choices[0].message.content for source in SOURCES
        ] == wanted


def test_a_model_for_fields_writes_its_own_keys(models):
    """It has learnt no fields, and writes what the schema allows."""
    learnt = load_checkpoint(str(models / "pipelined"))
    fields = (Field("name"), Field("food", enum=("Thai", "Greek")))
    segmentation = Segmentation("field", (), " ", fields=fields)
    how = structs.replace(learnt.settings, delay="together", segmentation=segmentation)
    save_checkpoint(replace(learnt, settings=how, segmenter=None), models / "fields")
    wanted = generated(models, "--model", models / "fields")
    form = form_of({"properties": {"food": {}, "name": {}}})
    with serving(models / "fields") as made:
        assert [made.text(source) for source in SOURCES] == wanted
        for asked in (form, {"type": "json_object"}):
            assert (
                made.chat(SOURCES[0], response_format=asked).choices[0].message.content
                == wanted[0]
            )
        with pytest.raises(
            openai.BadRequestError, match="the model writes the keys food, name"
        ):
            made.chat(SOURCES[0], response_format=form_of(SCHEMA))
        *parts, _ = made.chat(
            SOURCES[0],
            stream=True,
            extra_body={"stream_options": {"pipedec_rows": True}},
        )
        assert "".join(part.choices[0].delta.content for part in parts) == wanted[0]
        assert {token["label"] for part in parts for token in part.pipedec_rows} == {
            "name",
            "food",
        }


def test_a_request_opens_a_bounded_number_of_rows(models, monkeypatch):
    monkeypatch.setattr(
        rows, "names_in", lambda _: [f"n{number}" for number in range(9)]
    )
    menu = {
        "type": "array",
        "items": {
            "properties": {"name": {"type": "string"}, "stars": {"type": "integer"}}
        },
    }
    with serving(models / "chat", max_keys=3) as made:
        answer = made.chat(
            "a",
            response_format=form_of(
                {"properties": {"menu": menu}, "required": ["menu"]}
            ),
        )
    (choice,) = answer.choices
    found = json.loads(choice.message.content)["menu"]
    assert choice.finish_reason == "length" and len(found) == 9
    assert sum("stars" in one for one in found) <= 5, (
        "6 rows, of which one has given the names"
    )


def rows_of(parts):
    """The tokens of each row of a stream, by its number."""
    rows = {}
    for part in parts:
        for token in part.pipedec_rows:
            rows.setdefault(token["row"], []).append(token)
    return rows


def written(rows):
    """The texts of rows that are not empty, without spaces."""
    texts = []
    for row in rows.values():
        if len(row) > 1:
            texts.append("".join(token["text"] for token in row).replace(" ", ""))
    return texts


def test_a_stream_gives_the_text_in_order_and_the_tokens_of_rows_as_they_come(
    pipelined,
):
    for source, told in TOLD:
        options = {"stream_options": {"include_usage": True, "pipedec_rows": True}}
        *parts, last, counted = pipelined.client.completions.create(
            model="pipelined", prompt=source, stream=True, extra_body=options
        )
        whole = pipelined.client.completions.create(model="pipelined", prompt=source)
        assert (
            "".join(part.choices[0].text for part in parts)
            == whole.choices[0].text
            == "; ".join(told)
        )
        assert (last.choices[0].finish_reason, counted.usage.total_tokens) == (
            "stop",
            whole.usage.total_tokens,
        )
        assert (
            whole.usage.prompt_tokens_details.cached_tokens == whole.usage.prompt_tokens
        )
        assert sum(part.choices[0].text != "" for part in parts) > 2
        rows = rows_of(parts)
        assert written(rows) == [text.replace(" ", "") for text in told]
        for row in rows.values():
            ends = [token["ended"] for token in row]
            assert ends == [*[False] * (len(row) - 1), True]
        if source == TOLD[0][0]:
            assert rows[2][0]["time"] < rows[1][-1]["time"], (
                "before the first has ended"
            )


def test_the_first_piece_of_a_chat_alone_names_the_role(pipelined):
    *pieces, _ = pipelined.chat(TOLD[0][0], stream=True)
    roles = [piece.choices[0].delta.role for piece in pieces]
    assert len(roles) > 2
    assert roles == ["assistant", *[None] * (len(roles) - 1)]


texts = st.lists(st.lists(st.integers(2, 3), max_size=3).map(tuple), max_size=6)


@settings(max_examples=100)
@given(texts, st.integers(1, 4), st.booleans(), st.sampled_from(["retry", "stop"]))
def test_what_was_streamed_is_never_taken_back(texts, delay, stops, rule):
    def said(ids):
        """A 3 is the first half of a letter; alone it is no letter."""
        return re.sub("3(.)", "ä", "".join(map(str, ids))).replace("3", "\ufffd")

    class Said:
        fields = None
        text = type("Text", (), {"decode": staticmethod(said)})
        settings = type(
            "Settings", (), {"segmentation": type("Joined", (), {"joiner": " "})}
        )

    method = Method(Fixed(delay), BOS, EOS, empty_rows=rule, stop_on_repeat=stops)
    request, seen = Request("a", decoder=Said, method=method), []
    for event in decode(ScriptedModel([texts]), [(0, [0])], method):
        request.grid = getattr(event, "grid", request.grid)
        if isinstance(event, Stepped):
            seen.append(settled(request))
        elif isinstance(event, Finished):
            seen.append(" ".join(map(said, event.texts)))
    assert all(seen[-1].startswith(text) for text in seen)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"temperature": 0.7}, "temperature is not served: decoding is greedy"),
        ({"top_p": 0.5}, "top_p is not served"),
        ({"n": 2}, "n is not served"),
        ({"stop": ["a"] * 5}, "`array` of length <= 4"),
        (
            {"stop": "a", "extra_body": {"response_format": {"type": "json_object"}}},
            "stop is for texts; leave it out",
        ),
        ({"logprobs": 6}, "logprobs: Expected `int` <= 5"),
        ({"logprobs": 1, "stream": True}, "logprobs are not sent in streams"),
        (
            {"extra_body": {"tool_choice": "required"}},
            "tool_choice is not served: no model here calls tools",
        ),
        (
            {"extra_body": {"modalities": ["text", "audio"]}},
            "modalities is not served: answers are texts",
        ),
        ({"max_tokens": 0}, "max_tokens: Expected `int` >= 1"),
        ({"prompt": " "}, "prompt: the text is blank"),
        ({"prompt": "name[ " * 2_000}, "the text is too long.*; send a shorter text"),
        ({"extra_body": {"colour": 1}}, "no parameter 'colour'; leave it out"),
        ({"extra_body": {"maxtokens": 1}}, "no parameter 'maxtokens'; send max_tokens"),
        ({"extra_body": {"messages": [1]}}, "send prompt, or ask /v1/chat/completions"),
        (
            {"extra_body": {"response_format": {"type": "xml"}}},
            "give text, json_object, or json_schema",
        ),
        ({"extra_body": {"response_format": {"type": "json_object"}}}, "such objects"),
        ({"model": "gpt"}, "there is no model 'gpt'; this server has 'pipelined'"),
    ],
)
def test_a_request_that_cannot_be_served_is_refused_by_name(pipelined, wrong, message):
    kind = openai.NotFoundError if "model" in wrong else openai.BadRequestError
    with pytest.raises(kind, match=message) as error:
        pipelined.client.completions.create(
            **{"model": "pipelined", "prompt": "a", **wrong}
        )
    assert (error.value.code == "context_length_exceeded") == message.startswith(
        "the text is too long"
    )
    assert (
        pipelined.text("a", temperature=0, top_p=1, n=1, stop=None, seed=3, user="me")
        == "A.; B.; C.; D."
    )
    idle = {"tool_choice": "none", "parallel_tool_calls": False, "modalities": ["text"]}
    assert pipelined.text(["a"], extra_body=idle) == "A.; B.; C.; D."


def test_forms_of_a_message_that_mean_the_same_are_taken_and_without_a_chat_one_message_is_read(
    pipelined, chat
):
    told = "messages: the model reads one message, the user's; send the user's message alone"
    with pytest.raises(openai.BadRequestError, match=told):
        pipelined.chat("a", ("system", "Be brief."))
    assert (
        pipelined.chat("a", ("system", " ")).choices[0].message.content
        == "A.; B.; C.; D."
    )

    def said(*turns):
        (choice,) = chat.client.chat.completions.create(
            model="chat", messages=turns, max_tokens=4
        ).choices
        return choice.message

    system, user = (
        {"role": "system", "content": "The Mill."},
        {"role": "user", "content": "a\nb"},
    )
    parts = [{"type": "text", "text": text} for text in "ab"]
    wanted = said(system, user)
    for turns in (
        ({**system, "role": "developer"}, user),
        (
            {**system, "content": [{"type": "text", "text": "The Mill."}]},
            {**user, "content": parts},
        ),
        (system, {**user, "name": "anna"}),
    ):
        assert said(*turns).content == wanted.content
    assert said({**system, "content": ""}, user).content
    assert said(user, {**wanted.model_dump(), "content": "it is"}, user).content, (
        "an answer is sent back"
    )
    for content, told in [
        ("", "a message of the user has no text"),
        (None, "no text"),
        ([], "no text"),
    ]:
        with pytest.raises(openai.BadRequestError, match=told):
            said({"role": "user", "content": content})
    picture = {"type": "image_url", "image_url": {"url": "http://a"}}
    for wrong, told in ((picture, "; send text"), (3, "")):
        with pytest.raises(openai.BadRequestError, match=rf"messages\[0\].*{told}"):
            said({"role": "user", "content": [wrong]})
    with pytest.raises(
        openai.BadRequestError,
        match="the model has no keys of its own; send a json_schema",
    ):
        chat.chat("a", response_format={"type": "json_object"})


def test_keywords_that_no_value_is_held_to_are_named_or_refused(chat):
    tags = {"type": "array", "items": {"type": ["string", "integer"], "minLength": 900}}
    form = form_of({"type": "object", "properties": {"tags": tags}})
    told = "response_format: no row is held to these keywords: minLength"
    short = f'{told}; tags[1]: "a" is shorter than 900 characters'
    assert chat.chat("a", response_format=form).pipedec_warning == short
    *parts, _ = chat.chat("a", response_format=form, stream=True)
    assert parts[0].pipedec_warning == told
    until(lambda: [entry.get("warning") for entry in chat.log[-2:]] == [short] * 2)
    long = {"type": "string", "minLength": 900}
    must = form_of({"properties": {"a": long, "b": long}, "required": ["a"]})
    end = chat.chat("a", response_format=must).pipedec_warning
    lost = "1 value lost: cut short, or none that the schema allows"
    assert end == f'a: "a" is shorter than 900 characters; {lost}'
    *parts, last = chat.chat("a", response_format=must, stream=True)
    assert last.pipedec_warning == end
    phone = form_of({"properties": {"a": {"type": "string", "format": "phone"}}})
    told_of_format = "response_format: no row is held to these keywords: format"
    assert chat.chat("a", response_format=phone).pipedec_warning.startswith(
        told_of_format
    )
    odd = form_of({"properties": {"a": {"type": "string", "pattern": r"a\Z"}}})
    assert "'a': the pattern \"a" in chat.chat("a", response_format=odd).pipedec_warning
    form["json_schema"]["strict"] = True
    with pytest.raises(
        openai.BadRequestError, match=f"{told}; leave them out, or leave strict out"
    ):
        chat.chat("a", response_format=form)


@pytest.mark.parametrize(
    ("how", "wrong"),
    [
        (
            {"prompt_template": "{source}{question}"},
            {"response_format": form_of(SCHEMA)},
        ),
        (
            {"max_source_tokens": 40},
            {"messages": [{"role": "user", "content": "name[ " * 40}]},
        ),
        (
            {"max_source_tokens": 40},
            {
                "messages": [
                    {"role": role, "content": "a " * 40} for role in ("system", "user")
                ]
            },
        ),
        (
            {"chat": False},
            {
                "messages": [
                    {"role": role, "content": "a"} for role in ("system", "user")
                ]
            },
        ),
    ],
)
def test_no_client_is_told_to_change_a_setting_of_the_server(models, how, wrong):
    body = {"model": "chat", "messages": [{"role": "user", "content": "a"}]} | wrong
    with serving(models / "chat", **how) as made:
        status, _, answer = made.raw(
            "POST", "/v1/chat/completions", json.dumps(body).encode()
        )
    error = json.loads(answer)["error"]
    assert status == 400
    assert not re.search(
        "--|pipedec|time_max|template|line break", error["message"].partition("; ")[2]
    )


def test_a_pipelined_model_without_fields_refuses_objects_and_does_not_tell_where_it_lies(
    tmp_path,
):
    asked = {"response_format": form_of(SCHEMA)}
    model = tiny_checkpoint(tmp_path / "secret", family="llama")
    with (
        serving(model, name="m") as made,
        pytest.raises(openai.BadRequestError) as error,
    ):
        made.client.completions.create(model="m", prompt="a", extra_body=asked)
    assert error.value.param == "response_format"
    assert "secret" not in str(error.value) and "--" not in str(error.value)


def test_pages_of_other_sites_cannot_ask_a_local_server(models):
    body = b'{"model": "pipelined", "prompt": "a"}'
    with serving(models / "pipelined", allow_host=("box.lan",)) as made:
        own = f"127.0.0.1:{made.address[1]}"
        for status, hosts, origins in (
            (
                200,
                ["LOCALHOST", "a.localhost:80", "127.1.2.3", "[::1]:8", "box.lan:3"],
                [""],
            ),
            (
                403,
                ["evil.com", "localhost.evil.com", "127.0.0.1.nip.io:80", "", "[::2]"],
                [""],
            ),
            (200, [own], [f"http://{own}", "https://box.lan"]),
            (403, [own], ["null", "http://127.0.0.1:9", "https://evil.com"]),
        ):
            for host, origin in product(hosts, origins):
                head = {"Host": host} | ({"Origin": origin} if origin else {})
                assert made.raw("POST", "/v1/completions", body, **head)[0] == status, (
                    head
                )
    with serving(models / "pipelined") as made:
        assert made.raw("GET", "/health", Host="box.lan")[0] == 403
        made.server.api.is_local = False  # as with --host 0.0.0.0
        assert made.raw("GET", "/health", Host="box.lan")[0] == 200


ASKED = b'{"model": "pipelined", "prompt": "a"}'
PLAIN = {"Content-Type": "text/plain"}
#: What is sent where, with more headers, and the status of the answer.
BROKEN = [
    ("POST", "completions", b"{", {}, 400),
    ("POST", "completions", b"\xff", {}, 400),
    ("POST", "completions", b"[" * 100_000, {}, 400),
    ("POST", "completions", ASKED, PLAIN, 415),
    ("POST", "chat/completions", b'{"model": "pipelined", "messages": [3]}', {}, 400),
    ("POST", "completions", b" " * 1_000_001, {}, 413),
    ("POST", "completions", b" " * 20_000_000, {}, 413),
    ("POST", "completions", b" " * 20_000_000, PLAIN, 415),
    ("POST", "nothing", b" " * 20_000_000, {}, 404),
    ("POST", "chat/completions", b'{"model": "pipelined", "messages": []}', {}, 400),
    ("PUT", "completions", b"", {}, 404),
    ("GET", "nothing", b"", {}, 404),
    ("POST", "chat/completions", ASKED, {}, 400),
]


@pytest.mark.parametrize(
    ("method", "path", "right"),
    [
        ("POST", "/metrics", "GET /metrics"),
        ("POST", "/", "GET /"),
        ("GET", "/v1/decisions", "POST /v1/decisions"),
    ],
)
def test_a_path_that_has_another_method_is_told_with_it(pipelined, method, path, right):
    status, _, answer = pipelined.raw(method, path)
    assert status == 404
    assert json.loads(answer)["error"]["message"].endswith(f"ask {right}")


def test_broken_bodies_and_paths_get_an_error_in_the_same_shape(pipelined):
    for method, path, body, more, status in BROKEN:
        found, head, answer = pipelined.raw(method, f"/v1/{path}", body, **more)
        assert found == status
        assert {"message", "type", "param", "code"} == set(json.loads(answer)["error"])
        assert ("ask POST /v1/" in answer.decode()) == (status == 404)
        assert "traceback" not in answer.decode().lower() and "application/json" in head
    assert (
        pipelined.raw(
            "POST", "/v1/completions", ASKED, **{"CONTENT-TYPE": "Application/JSON"}
        )[0]
        == 200
    )
    assert [
        pipelined.raw("HEAD", path)[::2] for path in ("/", "/health", "/v1/models")
    ] == [(200, b"")] * 3
    status, head, page = pipelined.raw("GET", "/")
    assert status == 200 and b"<title>" in page
    assert "default-src 'none'" in head and "frame-ancestors 'none'" in head
    status, _, told = pipelined.raw("GET", "/metrics")
    assert (
        status == 200
        and b"pipedec_running 0" in told
        and b"pipedec_cache_bytes " in told
    )
    assert b'pipedec_requests_total{status="413"} 2' in told


def test_a_full_queue_says_when_to_come_again_and_a_client_that_leaves_frees_its_place(
    models,
):
    with (
        serving(models / "pipelined", batch_size=1, queue=1) as made,
        ThreadPoolExecutor(2) as pool,
    ):
        with held(made.service):
            body = json.dumps({"model": "pipelined", "prompt": SOURCES[3]}).encode()
            leaving = [socket.create_connection(made.address) for _ in range(2)]
            for number, one in enumerate(leaving):
                one.sendall(f"{POST}{len(body)}\r\n\r\n".encode() + body)
                until(partial(made.has, 1, number))
            status, told, _ = made.raw("POST", "/v1/completions", body)
            assert status == 429 and "retry-after: 1" in told
            with pytest.raises(
                openai.RateLimitError, match="1 running and 1 waiting requests"
            ):
                made.text("a")
            waiting = made.service.waiting[0]
            leaving[1].close()
            until(lambda: waiting.gone)
            stays = pool.submit(made.text, "a")
            until(lambda: len(made.service.waiting) == 2)
            leaving[0].close()
            until(lambda: made.service.running[0].gone)
        assert stays.result() == "A.; B.; C.; D."
        assert made.service.running == {} and not made.service.waiting
        until(lambda: sum(entry.get("left", False) for entry in made.log) == 2)


def test_what_fails_in_the_engine_is_an_error_for_those_that_run_and_the_next_are_served(
    models,
):
    with serving(models / "pipelined") as made:
        step = made.service.engine.step
        made.service.engine.step = lambda rows: 1 / 0
        with pytest.raises(
            openai.InternalServerError, match="the request could not be served"
        ):
            made.text("a")
        body = b'{"model": "pipelined", "prompt": "a", "stream": true}'
        _, _, parts = made.raw("POST", "/v1/completions", body)
        assert (
            b"could not be served" in parts
            and b"ZeroDivision" not in parts
            and b"[DONE]" not in parts
        )
        made.service.engine.step, result = step, made.service.decoder.result
        made.service.decoder.result = lambda *_: 1 / 0
        with pytest.raises(
            openai.InternalServerError, match="the request could not be served"
        ):
            made.text("a")
        made.service.decoder.result = result
        assert made.text("a") == "A.; B.; C.; D."


def test_an_ending_server_refuses_newcomers_and_finishes_what_runs(models):
    with (
        serving(models / "pipelined", batch_size=1) as made,
        ThreadPoolExecutor(2) as pool,
    ):
        with held(made.service):
            runs = pool.submit(made.text, "a")
            until(lambda: made.service.running)
            waits = pool.submit(made.text, "a")
            until(lambda: made.service.waiting)
            assert made.raw("GET", "/ready")[0] == 200
            made.service.close()
            assert (made.raw("GET", "/ready")[0], made.raw("GET", "/health")[0]) == (
                503,
                200,
            )
            with pytest.raises(openai.InternalServerError, match="the server ends"):
                made.text("a")
        assert runs.result() == "A.; B.; C.; D."
        with pytest.raises(openai.InternalServerError, match="the server ends"):
            waits.result()


@pytest.mark.parametrize(("grace", "signals"), [(60, 2), (0.3, 1)])
@pytest.mark.parametrize("schema", [None, SCHEMA])
def test_a_second_signal_and_the_end_of_the_grace_end_at_once_whatever_is_under_way(
    models, grace, signals, schema, monkeypatch
):
    """Signals come to the main thread, which serves here; a decoder call, or a schema's reading, does not end."""
    monkeypatch.setattr("pipedec_cli.serve.api.GRACE", grace)
    service = Service(ServeSettings(model=str(models / "chat"), device="cpu"))
    made, gate = Served(service, start=False), threading.Event()
    if schema:
        service._of = lambda *_: gate.wait(300)

    def kill():
        until(lambda: service.waiting if schema else service.running)
        for _ in range(signals):
            os.kill(os.getpid(), signal.SIGTERM)
            until(lambda: service.closing)

    with held(service), ThreadPoolExecutor(2) as pool:
        asks = pool.submit(
            made.chat, "a", **({"response_format": form_of(schema)} if schema else {})
        )
        pool.submit(kill)
        made.run()
        with pytest.raises(openai.APIError):
            asks.result()
        gate.set()
    made.client.close()


@pytest.mark.parametrize("stream", [False, True])
def test_an_ending_server_answers_until_the_last_answer_is_sent(models, stream):
    """The signal comes to the main thread, which serves here; other clients come before the call that runs has ended."""
    service = Service(ServeSettings(model=str(models / "pipelined"), device="cpu"))
    made = Served(service, start=False)
    body = {"model": "pipelined", "prompt": SOURCES[3], "stream": stream}
    ask = partial(made.raw, "POST", "/v1/completions", json.dumps(body).encode())
    with held(service) as gate, ThreadPoolExecutor(2) as pool:

        def end():
            try:
                until(lambda: service.running)
                os.kill(os.getpid(), signal.SIGTERM)
                until(lambda: service.closing)
                time.sleep(0.5)  # uvicorn looks for its end ten times a second
                return [ask(), made.raw("GET", "/ready"), made.raw("GET", "/health")]
            finally:
                gate.set()

        runs = pool.submit(ask)
        others = pool.submit(end)
        made.run()
        newcomer, ready, health = others.result()
        status, _, answer = runs.result()
    made.client.close()
    assert (newcomer[0], ready[0], health[0]) == (503, 503, 200)
    assert all("retry-after: 1" in head for _, head, _ in (newcomer, ready))
    assert status == 200
    assert (b"[DONE]" if stream else b"Book early!") in answer
    with pytest.raises(ConnectionRefusedError):
        ask()


def test_a_refusal_of_a_full_server_counts_what_runs_and_waits(models):
    with (
        serving(models / "pipelined", batch_size=1, queue=0) as made,
        ThreadPoolExecutor(1) as pool,
    ):
        with held(made.service):
            runs = pool.submit(made.text, "a")
            until(lambda: made.service.running and not made.service.waiting)
            with pytest.raises(FullError) as full:
                made.service.submit(Request("a"))
            with pytest.raises(openai.RateLimitError):
                made.text("a")
        assert runs.result() == "A.; B.; C.; D."
    assert (full.value.running, full.value.waiting) == (1, 0)


@pytest.mark.slow
@pytest.mark.parametrize("stream", [False, True])
def test_a_text_ends_before_the_first_of_its_stops(pipelined, stream):
    whole = pipelined.text("a")
    for stop in ("C.", ["D.", "; C"], [whole[:1]], ["", "nowhere"], whole[3:9]):
        made = pipelined.client.completions.create(
            model="pipelined", prompt="a", stop=stop, stream=stream
        )
        text = (
            "".join(part.choices[0].text for part in made)
            if stream
            else made.choices[0].text
        )
        stops = [one for one in ([stop] if isinstance(stop, str) else stop) if one]
        assert (
            text
            == whole[
                : min((whole.index(one) for one in stops if one in whole), default=None)
            ]
        )
        assert stream or made.choices[0].finish_reason == "stop"


def test_tokens_come_with_their_probabilities_if_they_are_asked_for(chat, pipelined):
    plain = chat.chat("a", max_tokens=6).choices[0]
    made = chat.chat("a", max_tokens=6, logprobs=True, top_logprobs=3).choices[0]
    assert plain.logprobs is None and made.message.content == plain.message.content
    content = made.logprobs.content
    written = bytes(byte for one in content for byte in one.bytes).decode(
        errors="replace"
    )
    assert written.strip() == made.message.content and len(content) > 1
    for one in content:
        assert one.top_logprobs[0].token == one.token and len(one.top_logprobs) == 3
        assert one.top_logprobs[0].logprob == pytest.approx(one.logprob, abs=1e-4)
        assert (
            0
            >= one.logprob
            >= one.top_logprobs[1].logprob
            >= one.top_logprobs[2].logprob
        )
    made = pipelined.client.completions.create(
        model="pipelined", prompt="a", logprobs=0
    ).choices[0]
    tokens, offsets = made.logprobs.tokens, made.logprobs.text_offset
    assert (
        made.text == pipelined.text("a")
        and len(tokens) == len(made.logprobs.token_logprobs) > 3
    )
    assert any(token.strip() and " " in token for token in tokens)
    assert all(
        "".join(tokens[:number]) == "".join(tokens)[:at]
        for number, at in enumerate(offsets)
    )


def keys_of(count, **more):
    """A schema with so many keys."""
    return {"properties": {f"k{number}": more for number in range(count)}}


def choices_of(count):
    """A schema with a key of so many values."""
    labels = [f"c{number}" for number in range(count)]
    return {"properties": {"a": {"enum": labels}}, "required": ["a"]}


def doubled(times):
    """A schema whose keys are doubled so many times by references."""
    parts = {f"d{times}": {}}
    for number in range(times):
        below = {"$ref": f"#/$defs/d{number + 1}"}
        parts[f"d{number}"] = {"properties": {"a": below, "b": below}}
    return {"$defs": parts, "$ref": "#/$defs/d0"}


@pytest.mark.parametrize(
    ("schema", "told"),
    [
        (
            doubled(24),
            "response_format: the schema has more than 256 keys; write a smaller schema",
        ),
        (choices_of(10_001), "more than 10,000 choices"),
        (
            {"properties": {"a": {"const": "c" * 900_000}}},
            "more than 328,000 characters",
        ),
        (keys_of(99, description="so " * 300), "may take 8,192"),
    ],
    ids=["keys", "choices", "characters", "tokens"],
)
def test_a_schema_that_is_too_large_is_refused(chat, schema, told):
    with pytest.raises(openai.BadRequestError, match=told):
        chat.chat("a", response_format=form_of(schema))


def test_a_choice_of_many_values_is_read_once(chat):
    many = form_of(choices_of(600))
    answer = chat.chat("a", response_format=many, max_tokens=9)
    assert answer.usage.prompt_tokens < 400


def test_a_schema_stops_nobody_while_it_is_read(models):
    gate = threading.Event()
    few = {"timeout": 3, "queue": 2, "batch_size": 2}
    with (
        serving(models / "chat", max_tokens=2, **few) as made,
        ThreadPoolExecutor(4) as pool,
    ):
        made.service._of = lambda *_: gate.wait(300)
        form = form_of(SCHEMA)
        reads = [pool.submit(made.chat, "a", response_format=form) for _ in range(4)]
        until(lambda: len(made.service.waiting) == 4)
        full = "0 running and 4 waiting requests"
        with pytest.raises(openai.RateLimitError, match=full):
            made.chat("a")
        for read in reads:
            with pytest.raises(openai.APIStatusError, match="took too long"):
                read.result()
        made.chat("a")
        gate.set()
        until(lambda: not made.service.waiting)


def test_a_client_that_sends_or_reads_too_slowly_is_cut_and_others_are_served(
    models, monkeypatch
):
    monkeypatch.setattr("pipedec_cli.serve.api.READ_TIMEOUT", 0.4)
    with serving(models / "pipelined") as made:
        head = f"{POST}99\r\n"
        heads = [
            "",
            head,
            f"{head}\r\n{{",
            "GET /health HTTP/1.1\r\nHost: localhost\r\n\r\nGET",
        ]
        slow = [socket.create_connection(made.address, 30) for _ in heads]
        for one, text in zip(slow, heads, strict=True):
            one.sendall(text.encode())
        with ThreadPoolExecutor(4) as pool:
            told = pool.map(
                lambda one: b"".join(iter(partial(_received, one), b"")), slow
            )
            assert made.text("a") == "A.; B.; C.; D."
        statuses = [answer.partition(b"\r\n")[0] for answer in told]
        assert statuses == [
            b"",
            b"",
            b"HTTP/1.1 408 Request Timeout",
            b"HTTP/1.1 200 OK",
        ]
        until(
            lambda: len(made.server.server_state.connections) <= 1
        )  # that of the good client
        for one in slow:
            one.close()


def test_silent_connections_do_not_shut_others_out(models):
    with serving(models / "pipelined", batch_size=1, queue=1) as made:
        silent = [
            socket.create_connection(made.address, 30)
            for _ in range(made.server.most + 20)
        ]
        until(lambda: len(made.server.server_state.connections) == made.server.most)
        assert made.text("a") == "A.; B.; C.; D."
        for one in silent:
            one.close()


def _received(connection):
    """More of an answer; nothing when the connection is cut."""
    with suppress(ConnectionError):
        return connection.recv(65_536)
    return b""


def test_time_is_bounded_and_the_log_has_no_texts(models):
    with serving(models / "pipelined", timeout=0.5) as made:
        made.text("a")
        with (
            held(made.service),
            pytest.raises(openai.APIStatusError, match="took too long") as error,
        ):
            made.text("a")
        assert error.value.status_code == 504
        until(lambda: not made.service.running)
        assert "A." not in str(made.log)
    with serving(models / "pipelined", max_tokens=3) as made:
        answer = made.client.completions.create(model="pipelined", prompt="a")
        assert answer.choices[0].finish_reason == "length"
        with pytest.raises(openai.NotFoundError):
            made.client.completions.create(model="secret", prompt="a")
        assert "secret" not in str(made.log) and "A." not in str(made.log)
        wanted = {"status": 200, "path": "/v1/completions", "tokens": 3}
        assert wanted.items() <= made.log[0].items()


def test_keys_are_asked_for_and_other_machines_need_one(models, tmp_path):
    with serving(
        models / "pipelined", keys=[b"open", b"sesame", "schlüssel".encode()]
    ) as made:
        assert made.text("a") == "A.; B.; C.; D."
        for given in ("", "Bearer", "Bearer sesam", "Bearer \xe9"):
            assert made.raw("GET", "/v1/models", Authorization=given)[0] == 401
        for given in ("bearer sesame", "BEARER  open", "Bearer schlüssel"):
            assert made.raw("GET", "/v1/models", authorization=given)[0] == 200
        assert made.raw("GET", "/metrics")[0] == 401
        assert [made.raw("GET", path)[0] for path in ("/", "/health", "/ready")] == [
            200
        ] * 3
        refused("serve", "--port", made.address[1])
    refused("serve", "--host", "0.0.0.0", "--port", 0)
    refused("serve", "--host", "no.such.host.invalid")
    (tmp_path / "keys").write_text("\n", encoding="utf-8-sig")
    refused("serve", "--api-key-file", tmp_path / "keys")
    same_words(run("serve", "--grace", "3", exit_code=2).stderr)
    for name in ("schema", "chunk", "spans", "draft"):
        assert (
            f"no key '{name}'" in run("serve", "--set", f"{name}=8", exit_code=2).output
        )
