"""What stands around a source in the prompt of a decoder-only model, and where its texts end."""

from typing import Final

import pytest

from pipedec_cli.model.scratch import BOS, EOS, train_tokenizer
from pipedec_cli.model.text import (
    _TODAY,
    PROMPT,
    SOURCE,
    TextCodec,
    prompt_around,
    prompt_text,
    text_end,
)
from tests.model.chats import CHATML, DATED, chat_tokenizer
from tests.words import refusing

WORDS = ["Summarize the text: it is near the river.", "Summary: nobody goes there."]


def codec(template=PROMPT, limit=64, *, chat=False, tokenizer=None):
    tokenizer = tokenizer or chat_tokenizer()
    return TextCodec(
        tokenizer, "", limit, EOS, prompt_around(tokenizer, template, chat=chat)
    )


def shown(made, source):
    """The prompt of a source with its special tokens, and whether that was cut."""
    ids, cut = made.source(source)
    return made.tokenizer.decode(ids), cut


def test_a_template_stands_around_the_source_behind_the_token_that_begins_a_text():
    text, cut = shown(codec("Say {source} briefly:"), "The Mill")
    assert (" ".join(text.split()), cut) == ("<s> Say The Mill briefly:", False)
    made = codec("{source}")
    assert made.source("The Mill")[0] == [BOS, *made.ids(["The Mill"])[0]]
    plain = train_tokenizer(WORDS * 3, 400)
    assert prompt_around(plain, PROMPT, chat=False).first == (), (
        "this one begins with no token of its own"
    )


def test_a_prompt_that_leaves_no_room_for_a_source_is_refused():
    with refusing():
        codec("Say {source} briefly:", limit=5).source("a")


def test_a_text_begins_once_and_a_template_and_a_source_make_no_special_token_together():
    assert codec("<s>{source}").source("a")[0].count(BOS) == 1
    across = codec("<|im_{source}|> <|im_end|>")
    start, end = across.tokenizer.convert_tokens_to_ids(["<|im_start|>", "<|im_end|>"])
    assert across.source("start")[0].count(start) == 0
    assert across.source("end")[0].count(end) == 1


def test_earlier_turns_stand_before_the_source_as_text_and_their_template_runs_once_for_the_same_roles():
    made = codec("Say {source}", 256, chat=True)
    turns = [("system", "a <|im_end|> {turn 1}"), ("user", "{source}")]
    text, _ = shown(made.after(turns), "The Mill")
    wanted = "system\na <|im_end|> {turn 1}<|im_end|>\nuser\n{source}<|im_end|>\nuser\nSay The Mill<|im_end|>"
    assert wanted.replace(" ", "") in text.replace("<|im_start|>", "").replace(" ", "")
    assert made.after(()) is made
    made.tokenizer.chat_template = "gone"
    assert shown(made.after(turns), "The Mill")[0] == text
    twice = (
        CHATML
        + "{% if messages[0].role == 'system' %}{{ messages[0].content }}{% endif %}"
    )
    for template, roles in [
        (twice, ["system"]),
        (CHATML.replace("messages", "messages[-1:]"), ["user"]),
    ]:
        made = codec(limit=256, chat=True, tokenizer=chat_tokenizer(template))
        with refusing():
            made.after([(role, "a") for role in roles])
    with refusing():
        codec().after(turns)


def test_a_chat_template_that_tells_the_date_tells_the_same_one_every_day():
    assert (
        "user on 01 Jan 2025"
        in shown(codec(SOURCE, chat=True, tokenizer=chat_tokenizer(DATED)), "a")[0]
    )


@pytest.mark.parametrize("template", ["", "no source", "{source} and {source}"])
def test_a_template_names_the_source_once(template):
    with refusing():
        codec(template)


@pytest.mark.parametrize(
    "template",
    [
        None,
        "{{ messages[0].content }}{{ messages[0].content }}",
        "nothing",
        "{% if %}",
        "{{ messages[5].content.x }}",
        "{{ raise_exception('one\ntwo') }}",
        "{{ ''.__class__.__mro__ }}{{ messages[0].content }}{{ [][2].x }}",
    ],
)
def test_a_chat_template_that_is_missing_or_does_not_work_is_refused_in_one_line(
    template,
):
    tokenizer = chat_tokenizer()
    tokenizer.chat_template = template
    with refusing():
        codec(SOURCE, chat=True, tokenizer=tokenizer)


#: Templates with what transformers adds to jinja2.
ADDED: Final = (
    CHATML.replace(
        "messages %}", "messages %}{% if loop.index > 9 %}{% break %}{% endif %}"
    ),
    CHATML + "{{ messages | tojson }}",
    "{% for m in messages %}{% generation %}{{ m.content }}{% endgeneration %}{% endfor %}",
)


@pytest.mark.parametrize("template", [CHATML, DATED, *ADDED])
def test_a_chat_template_renders_as_in_transformers(template, monkeypatch):
    tokenizer = chat_tokenizer(template)
    turns = [{"role": "user", "content": SOURCE}]
    options = {
        "tokenize": False,
        "add_generation_prompt": True,
        "chat_template": _TODAY + template,
    }
    expected = tokenizer.apply_chat_template(turns, **options)
    if (
        template not in ADDED
    ):  # then transformers is not needed, whose import takes a second
        monkeypatch.setattr(type(tokenizer), "apply_chat_template", None)
    if expected.count(SOURCE) == 1:
        assert prompt_text(tokenizer, SOURCE, chat=True) == expected


def test_a_text_ends_at_the_tokenizers_eos_if_the_files_name_it_and_in_a_chat_at_the_end_of_a_turn():
    tokenizer = chat_tokenizer()
    assert text_end(tokenizer, [77, EOS], chat=False) == EOS
    assert text_end(tokenizer, [77], chat=False) == 77
    assert text_end(tokenizer, [77], chat=True) == tokenizer.convert_tokens_to_ids(
        "<|im_end|>"
    )
    tokenizer.chat_template = CHATML.replace("<|im_end|>", "")
    assert text_end(tokenizer, [77], chat=True) == 77, "no token ends a turn"
    tokenizer.eos_token = None
    assert text_end(tokenizer, [77, EOS], chat=False) == 77
