"""A prompt's tokens are those of its whole text: against plain calls of tokenizers, and of transformers' chat templates."""

import copy
import random
from dataclasses import dataclass
from functools import cache
from types import SimpleNamespace
from typing import Any, Final

import pytest
from tokenizers import (
    AddedToken,
    Regex,
    Tokenizer,
    decoders,
    models,
    normalizers,
    pre_tokenizers,
    processors,
    trainers,
)
from transformers import PreTrainedTokenizerFast

from pipedec_cli.data.errors import UserError
from pipedec_cli.data.fields import Field
from pipedec_cli.data.records import Record
from pipedec_cli.model.text import TextCodec, prompt_around
from pipedec_cli.objects.questions import Text
from pipedec_cli.objects.rows import BlindPlan, Rows
from pipedec_cli.objects.tree import tree_of

WORDS: Final = str.split(
    "The Mill Q: A: Text: Say France cheap food , . ! 12 2025 naïve 漢字 user :// briefly"
)
TEXTS: Final = [
    " ".join(random.Random(n).choices(WORDS, k=12)) + ("\n\n", "\n", "  x")[n % 3]
    for n in range(300)
]
MARKS: Final = [
    "<s>",
    "</s>",
    "<|im_start|>",
    "<|im_end|>",
    "<|end|>",
    "[INST]",
    "[/INST]",
]
_BYTES: Final = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
_LLAMA3: Final = r"[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"


def _made(model: Any, before: Any, **trainer: Any) -> Tokenizer:
    """A tokenizer trained on the texts; `before` splits them."""
    kind = (
        trainers.UnigramTrainer
        if isinstance(model, models.Unigram)
        else trainers.BpeTrainer
    )
    made = Tokenizer(model)
    made.pre_tokenizer = before
    made.train_from_iterator(
        TEXTS, kind(special_tokens=["<unk>"], show_progress=False, **trainer)
    )
    made.decoder = (
        decoders.ByteLevel() if "initial_alphabet" in trainer else decoders.Metaspace()
    )
    return made


def _of_bytes(before: Any) -> Tokenizer:
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    return _made(
        models.BPE(unk_token="<unk>"), before, vocab_size=600, initial_alphabet=alphabet
    )


def _gpt2() -> Tokenizer:
    return _of_bytes(pre_tokenizers.ByteLevel(add_prefix_space=False))


def _llama3() -> Tokenizer:
    return _of_bytes(
        pre_tokenizers.Sequence(
            [pre_tokenizers.Split(Regex(_LLAMA3), "isolated"), _BYTES]
        )
    )


def _llama2() -> Tokenizer:
    """Pieces without a pre-tokenizer, as Llama 2 and Gemma have them: a space is a letter like others."""
    made = _made(
        models.BPE(unk_token="<unk>"), pre_tokenizers.Metaspace(), vocab_size=500
    )
    made.normalizer = normalizers.Sequence(
        [normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")]
    )
    made.pre_tokenizer = None
    return made


def _mistral() -> Tokenizer:
    return _made(
        models.BPE(unk_token="<unk>"),
        pre_tokenizers.Metaspace(prepend_scheme="first"),
        vocab_size=500,
    )


def _unigram() -> Tokenizer:
    before = pre_tokenizers.Metaspace(prepend_scheme="first")
    return _made(models.Unigram(), before, vocab_size=300, unk_token="<unk>")


KINDS: Final = {
    one.__name__: one for one in (_gpt2, _llama3, _llama2, _mistral, _unigram)
}


@cache
def _backend(kind: str) -> str:
    return KINDS[kind]().to_str()


@cache
def tokenizer_of(kind: str, *, begins: bool = False) -> Any:
    """A tokenizer of the kind, with marks of chats; the mark <|end|> takes the white space behind it, as Phi's does."""
    backend = Tokenizer.from_str(_backend(kind))
    added = [
        AddedToken(mark, rstrip=mark == "<|end|>", normalized=False) for mark in MARKS
    ]
    backend.add_special_tokens(added)
    if begins:
        backend.post_processor = processors.TemplateProcessing(
            single="<s> $A", special_tokens=[("<s>", backend.token_to_id("<s>"))]
        )
    return PreTrainedTokenizerFast(
        tokenizer_object=backend, bos_token="<s>", eos_token="</s>"
    )


def codec_of(
    tokenizer: Any, template: str, most: int = 4096, *, chat: bool = False
) -> TextCodec:
    return TextCodec(
        tokenizer, "", most, 0, prompt_around(tokenizer, template, chat=chat)
    )


def oracle(tokenizer: Any, text: str) -> list[int]:
    return list(tokenizer(text, split_special_tokens=False)["input_ids"])


def texts_of(chance: random.Random, most: int = 6) -> str:
    parts = [*WORDS, " ", "  ", "\n", "\n\n", "\t", "://", "é", ".\n", ""]
    return "".join(
        chance.choice(parts) + chance.choice(["", " "])
        for _ in range(chance.randint(0, most))
    )


@pytest.mark.parametrize("begins", [False, True])
@pytest.mark.parametrize("kind", KINDS)
def test_the_tokens_of_a_prompt_are_those_of_its_whole_text(kind, begins):
    tokenizer, chance, apart = tokenizer_of(kind, begins=begins), random.Random(kind), 0
    for _ in range(300):
        head, tail = (
            "".join(chance.choice(["", *MARKS]) + texts_of(chance, 3) for _ in "ab")
            for _ in "ab"
        )
        source = texts_of(chance, 8)
        ids, cut = codec_of(tokenizer, head + "{source}" + tail).source(source)
        whole = head + source + tail
        expected = oracle(tokenizer, whole)
        assert ids == (
            expected[1:] if begins and whole.startswith("<s>") else expected
        ), whole
        assert not cut
        apart += (
            ids[-len(tokenizer.tokenize(source + tail)) :]
            != expected[len(oracle(tokenizer, head)) :]
        )
    assert apart, (
        "some tokens hold the end of a template's part and the beginning of a source"
    )


@pytest.mark.parametrize("kind", KINDS)
def test_a_long_source_is_cut_in_its_own_tokens_and_the_whole_is_tokenized_anew(kind):
    tokenizer, chance = tokenizer_of(kind, begins=True), random.Random(kind)
    for most in (20, 33, 64):
        made = codec_of(tokenizer, "Text: {source} A:", most)
        for text in (
            texts_of(chance, 400) + "The Mill " * 90,
            "漢字é" * 400,
            "cheap " * 20_000,
            "naïve",
        ):
            ids, cut = made.source(text)
            kept = (end for end in range(min(len(text), 6 * most), -1, -1))
            same = [
                end
                for end in kept
                if oracle(tokenizer, f"Text: {text[:end]} A:") == ids
            ]
            assert same and cut == (text not in {text[:end] for end in same}), (
                most,
                text[:90],
            )
            assert most - 4 <= len(ids) <= most or not cut


@pytest.mark.parametrize("kind", KINDS)
def test_special_tokens_in_a_users_words_are_text(kind):
    """Of all marks those of the template remain, and the words are read as the tokenizer reads them without marks."""
    tokenizer, chance = tokenizer_of(kind), random.Random(kind)
    made, marks = (
        codec_of(tokenizer, "<|im_start|>user\n{source}<|end|> \nA:"),
        {*MARKS},
    )
    for _ in range(60):
        said = "".join(
            chance.choice([" ", *MARKS]) + texts_of(chance, 2) for _ in range(3)
        )
        ids, _ = made.source(said)
        found = [one for one in tokenizer.convert_ids_to_tokens(ids) if one in marks]
        assert found == ["<|im_start|>", "<|end|>"], said


@pytest.mark.parametrize("kind", KINDS)
def test_a_long_source_of_marks_is_cut_within_a_mark(kind):
    made = codec_of(tokenizer_of(kind), "<|im_start|>{source}<|end|>", 47)
    ids, cut = made.source("<|im_start|>" * 300)
    assert cut
    assert 43 <= len(ids) <= 47


#: Chat templates in the forms of public model families.
CHATS: Final = {
    "ChatML": "{% for m in messages %}{{ '<|im_start|>' + m.role + '\n' + m.content + '<|im_end|>' + '\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}",
    "SmolLM": "{% for m in messages %}{% if loop.first and m.role != 'system' %}{{ '<|im_start|>system\nHelp.<|im_end|>\n' }}"
    "{% endif %}{{ '<|im_start|>' + m.role + '\n' + m.content + '<|im_end|>\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}",
    "Qwen 2.5": "{% if messages[0].role == 'system' %}{{ '<|im_start|>system\n' + messages[0].content + '<|im_end|>\n' }}{% else %}"
    "{{ '<|im_start|>system\nYou are Q.<|im_end|>\n' }}{% endif %}{% for m in messages %}{% if m.role != 'system' %}"
    "{{ '<|im_start|>' + m.role + '\n' + m.content + '<|im_end|>\n' }}{% endif %}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}",
    "Qwen 3": "{% for m in messages %}{% set said = m.content.split('</think>')[-1] %}"
    "{{ '<|im_start|>' + m.role + '\n' + said + '<|im_end|>\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% if enable_thinking is defined and not enable_thinking %}"
    "{{ '<think>\n\n</think>\n\n' }}{% endif %}{% endif %}",
    "Llama 2": "{% if messages[0].role == 'system' %}{% set rest = messages[1:] %}{% set sys = '<<SYS>>\n' + messages[0].content"
    " + '\n<</SYS>>\n\n' %}{% else %}{% set rest = messages %}{% set sys = '' %}{% endif %}{% for m in rest %}"
    "{% set said = sys + m.content if loop.first else m.content %}{% if m.role == 'user' %}"
    "{{ bos_token + '[INST] ' + said.strip() + ' [/INST]' }}{% else %}{{ ' ' + said.strip() + ' ' + eos_token }}{% endif %}{% endfor %}",
    "Llama 3": "{% for m in messages %}{% set said = '<|im_start|>' + m.role + '<|end|>\n\n' + m.content | trim + '<|im_end|>' %}"
    "{{ bos_token + said if loop.first else said }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant<|end|>\n\n' }}{% endif %}",
    "Mistral": "{{ bos_token }}{% set s = namespace(text='') %}{% for m in messages %}{% if m.role == 'system' %}"
    "{% set s.text = m.content + '\n\n' %}{% elif m.role == 'user' %}{{ '[INST] ' + (s.text if loop.last else '') + m.content + ' [/INST]' }}"
    "{% else %}{{ ' ' + m.content + eos_token }}{% endif %}{% endfor %}",
    "Mistral Nemo": "{{ bos_token }}{% for m in messages %}{% if m.role == 'user' %}{{ '[INST]' + m.content + '[/INST]' }}"
    "{% elif m.role == 'system' %}{{ '[INST]' + m.content + '\n\n[/INST]' }}{% else %}{{ m.content + eos_token }}{% endif %}{% endfor %}",
    "Gemma": "{{ bos_token }}{% for m in messages %}{% set role = 'model' if m.role == 'assistant' else m.role %}"
    "{{ '<|im_start|>' + role + '\n' + m.content | trim + '<|im_end|>\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>model\n' }}{% endif %}",
    "Phi 3": "{% for m in messages %}{{ '<|' + m.role + '|>\n' + m.content + '<|end|>\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|assistant|>\n' }}{% endif %}",
    "Phi 4": "{% for m in messages %}{{ '<|im_start|>' + m.role + '<|end|>' + m.content + '<|im_end|>' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant<|end|>' }}{% endif %}",
    "Zephyr": "{% for m in messages %}\n{{ '<|' + m.role + '|>\n' + m.content + eos_token }}\n{% if loop.last and add_generation_prompt %}\n"
    "{{ '<|assistant|>' }}\n{% endif %}\n{% endfor %}",
    "Vicuna": "{% for m in messages %}{% if m.role == 'system' %}{{ m.content + ' ' }}{% elif m.role == 'user' %}{{ 'USER: ' + m.content + ' ' }}"
    "{% else %}{{ 'ASSISTANT: ' + m.content + eos_token }}{% endif %}{% endfor %}{% if add_generation_prompt %}{{ 'ASSISTANT:' }}{% endif %}",
    "Alpaca": "{% for m in messages %}{% if m.role == 'system' %}{{ m.content + '\n\n' }}{% elif m.role == 'user' %}"
    "{{ '### Instruction:\n' + m.content + '\n\n' }}{% else %}{{ '### Response:\n' + m.content + '\n\n' }}{% endif %}{% endfor %}"
    "{% if add_generation_prompt %}{{ '### Response:\n' }}{% endif %}",
    "Command R": "{{ bos_token }}{% for m in messages %}{{ '<|im_start|><|' + m.role | upper + '_TOKEN|>' + m.content.strip() + '<|im_end|>' }}"
    "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|><|CHATBOT_TOKEN|>' }}{% endif %}",
    "DeepSeek": "{{ bos_token }}{% for m in messages %}{% if m.role == 'user' %}{{ 'User: ' + m.content + '\n\n' }}{% elif m.role == 'assistant' %}"
    "{{ 'Assistant: ' + m.content + eos_token }}{% else %}{{ m.content + '\n\n' }}{% endif %}{% endfor %}"
    "{% if add_generation_prompt %}{{ 'Assistant:' }}{% endif %}",
    "OLMo": "{{ bos_token }}{% for m in messages %}{{ '<|' + m.role + '|>\n' + m.content + (eos_token if m.role == 'assistant' else '') + '\n' }}"
    "{% endfor %}{% if add_generation_prompt %}{{ '<|assistant|>\n' }}{% endif %}",
    "Falcon": "{% for m in messages %}{{ '\n\n' if not loop.first }}{{ m.role.capitalize() + ': ' + (m.content | trim) }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '\n\nAssistant:' }}{% endif %}",
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("family", CHATS)
def test_a_chats_tokens_are_those_that_apply_chat_template_gives(family, kind):
    # What stands around turns is kept for a tokenizer: this one is new.
    tokenizer, chance = copy.copy(tokenizer_of(kind)), random.Random(family)
    tokenizer.chat_template = CHATS[family]
    for template, roles in [
        ("{source}", ()),
        ("{source}", ("system",)),
        ("Say {source} briefly:", ("user", "assistant")),
        ("Q: {source}", ("system", "user", "assistant")),
        ("{source} A:", ("system", "user", "assistant", "user", "assistant")),
    ]:
        for _ in range(2):
            turns = [
                (role, texts_of(chance) + chance.choice(["x", "x ", "x\n"]))
                for role in roles
            ]
            source = texts_of(chance) + chance.choice(["x", "x ", "x\n\n", "."])
            said = [*turns, ("user", template.replace("{source}", source))]
            messages = [{"role": role, "content": text} for role, text in said]
            options = {
                "add_generation_prompt": True,
                "enable_thinking": False,
                "return_dict": False,
            }
            options["tokenizer_kwargs"] = {"split_special_tokens": False}
            expected = tokenizer.apply_chat_template(messages, tokenize=True, **options)
            ids, cut = (
                codec_of(tokenizer, template, chat=True).after(turns).source(source)
            )
            assert (ids, cut) == (list(expected), False), said


ROWS: Final = (
    Field("name"),
    Field("near", enum=("pub", "river")),
    Field("menu[].name", path=("menu", 0, "name")),
    Field("menu[].stars", "integer", path=("menu", 0, "stars")),
)


def plan_of(
    tokenizer: Any, rows: Rows, template: str | None = None, *, chat: bool
) -> BlindPlan:
    """A plan of blind rows, of an ordinary model without weights."""
    backbone = SimpleNamespace(prompted=True, name="model")
    there = Unweighted(tokenizer, "sequential", backbone)
    codec = codec_of(tokenizer, "{source}")
    return BlindPlan(there, codec, rows, template, chat)


@dataclass
class Unweighted:
    """What a plan asks of a checkpoint."""

    tokenizer: Any
    settings: Any
    backbone: Any
    segmenter: Any = None
    name: str = "model"
    eos: int = 1
    ends: tuple[int, ...] = (1,)

    def end_as_usual(self, *, chat: bool) -> None:
        """Texts end as they do."""


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("form", ["chat", "questions", "shots", "question", "lists"])
def test_a_prompt_and_a_rows_known_tokens_are_the_tokens_of_the_whole_text(
    form, kind, monkeypatch
):
    tokenizer, chance, chat = (
        tokenizer_of(kind, begins=True),
        random.Random(form),
        form != "shots",
    )
    monkeypatch.setattr(tokenizer, "chat_template", CHATS["ChatML"])
    answers = {
        "name": "The {source} Mill",
        "near": "pub",
        "menu": [{"name": "food {question}", "stars": 3}],
    }
    shots = (Record("1", "Text {source}", "", (), (), "d:1", target_fields=answers),)
    asked = {
        "chat": Rows(tree_of(ROWS[:2])),
        "questions": Rows(
            questions=(
                Text("What is cheap?", grounded=False),
                Text("What is it?", grounded=False),
                Text("Who?", grounded=False),
            )
        ),
        "shots": Rows(tree_of(ROWS), shots=shots),
        "question": Rows(questions=(Text("a Mill", grounded=False),)),
        "lists": Rows(tree_of(ROWS)),
    }[form]
    for template in (None, "Text: {source} Q: {question} A:", "{source}\n{question}"):
        plan = plan_of(tokenizer, asked, template, chat=chat)
        words = [plan.words(one) for one in plan.asked]
        for _ in range(25):
            source = texts_of(chance) + chance.choice(
                ["", "x", ".", "Text:", "\n", ".\n", "漢"]
            )
            ids, cut = plan.text.source(source)
            assert not cut
            for said, known in zip(words, plan.known, strict=True):
                used = plan.text.prompt.template
                text = filled(used, source=source, question=said)
                if chat:
                    whole = chat_ids(tokenizer, text)
                else:
                    text = text[: text.rindex(said) + len(said)]
                    shown = filled(used, source="Text {source}", question=SHOWN)
                    whole = oracle(tokenizer, shown + text)
                ends_in_space = source != source.rstrip()
                assert [*ids, *known] == whole or ends_in_space, (source, said)


#: The answers of the example, as rows without a chat read them.
SHOWN = "name: The {source} Mill\nnear: pub\nmenu: food {question}\nmenu[1].name: food {question}\nmenu[1].stars: 3"


def filled(template, source, question):
    """A template with both, whatever they hold."""
    behind = template.replace("{question}", "\x00").replace("{source}", source)
    return behind.replace("\x00", question)


def chat_ids(tokenizer, text):
    """The tokens of a text as the first turn of a chat, up to the answer."""
    messages = [{"role": "user", "content": text}]
    whole = tokenizer.apply_chat_template(
        messages, tokenize=False, add_generation_prompt=True
    )
    options = {"add_special_tokens": False, "split_special_tokens": False}
    return tokenizer(whole, **options)["input_ids"]


def test_a_prompt_without_a_token_is_an_end():
    assert codec_of(tokenizer_of("_gpt2"), "{source}").source("") == ([0], False)


def test_a_question_stands_apart_from_the_text():
    for template in ("{source}{question}", "{question}{source}", "{source}"):
        with pytest.raises(
            UserError,
            match=r"say \{question\} once, behind \{source\} and apart from it",
        ):
            plan_of(
                tokenizer_of("_gpt2"), Rows(tree_of(ROWS[:2])), template, chat=False
            )
