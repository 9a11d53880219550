"""Ends of a text: all ids that a model's files name, in each way to decode, and where transformers' `generate` stops."""

import json
import random
import shutil
import time
from collections import Counter

import pytest
import torch

from pipedec_cli.compare.peers.transformers import Transformers
from pipedec_cli.compare.runners import EngineRunner
from pipedec_cli.data.errors import UserError
from pipedec_cli.data.fields import Field
from pipedec_cli.decoding.blind import blind_decoder
from pipedec_cli.decoding.decoder import load
from pipedec_cli.decoding.exact import exact_decoder
from pipedec_cli.model.checkpoint import fingerprint, load_checkpoint, save_checkpoint
from pipedec_cli.model.scratch import start_checkpoint
from pipedec_cli.objects.rows import Rows
from pipedec_cli.objects.tree import tree_of
from tests.checkpoints import SOURCES, change, tiny_checkpoint
from tests.model.chats import foreign
from tests.model.engines import EOS, FAMILIES, KINDS, VOCABULARY
from tests.model.test_checkpoint import SETTINGS, words_tokenizer
from tests.model.test_files import saved
from tests.running import read_json

MOST = 24
#: The ends in config.json and in generation_config.json; without the latter there is no
#: such file.
LAYOUTS = {
    "a list in config.json": lambda own, other: ([own, other], None),
    "a list in generation_config.json": lambda own, other: (own, [other, own]),
    "a list in both": lambda own, other: ([other, own], [own, other]),
}


def elsewhere(kind, folder):
    """A small model of a family, as one that pipedec has not trained."""
    change(saved(folder, kind) / "config.json", "pipedec")
    if kind == "t5gemma":  # whose halves have a size of their own
        change(folder / "config.json", vocab_size=VOCABULARY)
        words_tokenizer(VOCABULARY).save_pretrained(folder)
    return folder


def name_ends(folder, config, generation):
    """Let the files of a folder name these ends."""
    change(folder / "config.json", eos_token_id=config)
    path = folder / "generation_config.json"
    if generation is None:
        path.unlink(missing_ok=True)
    else:
        change(path, eos_token_id=generation)


def sources_for(checkpoint, count):
    """Sources in ids of different lengths; for an encoder with an end."""
    draw, end = (
        random.Random(count),
        [] if checkpoint.backbone.prompted else [checkpoint.eos],
    )
    lengths = (draw.randint(2, 12) for _ in range(count))
    return [[*draw.choices(range(3, VOCABULARY), k=length), *end] for length in lengths]


def written(decoder, sources):
    """The tokens of our texts, without ends."""
    made = EngineRunner(decoder, {"max_tokens": MOST}).run(
        sources, 4, time.perf_counter
    )
    return [output.tokens for output in made.outputs]


def written_by_transformers(folder, sources):
    """The tokens of the texts of `generate`, which reads the folder's files; the last one may be an end."""
    import transformers

    backbone, texts = load_checkpoint(str(folder)).backbone, []
    model = getattr(transformers, backbone.auto_class).from_pretrained(folder)
    for source in sources:
        ids = torch.tensor([source])
        how = {"do_sample": False, "max_new_tokens": MOST, "forced_eos_token_id": None}
        made = model.generate(ids, attention_mask=torch.ones_like(ids), **how)[
            0
        ].tolist()
        texts.append(tuple(made[len(source) if backbone.prompted else 1 :]))
    return texts


def within(texts):
    """A token that most of the texts have before their end."""
    counts = Counter(token for text in texts for token in {*text[1:]})
    return counts.most_common(1)[0][0]


def stop_alike(kind, layout, count, folder, monkeypatch):
    """Texts of a model with two ends equal those of transformers, by the kernels and by torch."""
    before = load(elsewhere(kind, folder), device="cpu")
    sources = sources_for(before.checkpoint, count)
    longer = written(before, sources)
    other = within(longer)
    name_ends(folder, *LAYOUTS[layout](before.checkpoint.eos, other))
    ends, theirs = (
        {before.checkpoint.eos, other},
        written_by_transformers(folder, sources),
    )
    expected = [text[: len(text) - (text[-1] in ends)] for text in theirs]
    assert expected != longer
    for engine in ("", "0"):
        monkeypatch.setenv("PIPEDEC_NATIVE", engine)
        decoder = load(folder, device="cpu")
        assert {*decoder.checkpoint.ends} == ends
        assert written(decoder, sources) == expected
        peer = Transformers(load_checkpoint(str(folder)), MOST)
        assert [
            made.tokens for made in peer.run(sources[:3], 3, time.perf_counter).outputs
        ] == expected[:3]


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("kind", ["t5", "llama"])
def test_texts_stop_where_those_of_transformers_do(kind, layout, monkeypatch, tmp_path):
    stop_alike(kind, layout, 4, tmp_path, monkeypatch)


@pytest.mark.slow
@pytest.mark.parametrize("kind", [*KINDS, *FAMILIES])
def test_twenty_texts_of_every_family_stop_where_those_of_transformers_do(
    kind, monkeypatch, tmp_path
):
    stop_alike(kind, "a list in both", 20, tmp_path, monkeypatch)


# --- Each way to decode
# -----------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def chat(tmp_path_factory):
    """A chat model from elsewhere; not to be changed."""
    return foreign(tmp_path_factory.mktemp("chat"))


def with_another(folder, place, tokens):
    """A copy of a model that also ends at a token of a text, the one at `place` or the next that is not within before."""
    copied = shutil.copytree(folder, place)
    at = next(n for n in range(3, len(tokens)) if tokens[n] not in tokens[:n])
    name_ends(copied, load_checkpoint(str(folder)).eos, tokens[at])
    return copied, tokens[at], tokens[:at]


@pytest.mark.parametrize("draft", ["source", "jacobi"])
def test_exact_mode_ends_where_the_plain_text_does(draft, chat, tmp_path):
    (before,) = load(chat, device="cpu").texts([SOURCES[0]])
    folder, end, kept = with_another(chat, tmp_path / "more", before.grid[0][1])
    decoder = load(folder, device="cpu")
    exact = exact_decoder(decoder, draft)
    for made in (*decoder.texts([SOURCES[0]]), *exact.texts([SOURCES[0]])):
        assert made.grid == ((0, (*kept, end)),)
        assert (made.text, made.tokens) == (decoder.text.decode(kept), len(kept))
        assert made.truncated is None


def test_a_drafted_text_and_rows_of_a_trained_model_end_at_each_of_its_ends(tmp_path):
    folder = tiny_checkpoint(tmp_path / "pipelined")
    (before,) = load(folder, device="cpu").texts([SOURCES[0]])
    more, end, kept = with_another(folder, tmp_path / "more", before.grid[0][1])
    decoder = load(more, device="cpu")
    assert (decoder.checkpoint.eos, decoder.checkpoint.ends) == (EOS, (EOS, end))
    (made,) = decoder.texts([SOURCES[0]])
    assert made.grid[0] == (0, (*kept, end))
    assert made.segments[0] == decoder.text.decode(kept)


def test_blind_rows_end_at_each_end_which_is_no_part_of_their_values(chat, tmp_path):
    def blind(folder):
        rows = Rows(tree_of([Field("name")]))
        return blind_decoder(
            load(folder, device="cpu"), rows, chat=True, grounded=False
        )

    (before,) = blind(chat).texts([SOURCES[0]])
    folder, end, kept = with_another(chat, tmp_path / "more", before.grid[0][1])
    decoder = blind(folder)
    turn = decoder.text.tokenizer.convert_tokens_to_ids("<|im_end|>")
    assert decoder.checkpoint.ends == (turn, EOS, end)
    (made,) = decoder.texts([SOURCES[0]])
    assert made.grid == ((0, (*kept, end)),)
    assert made.fields["name"] == decoder.text.decode(kept)


def test_what_a_schema_holds_a_row_to_has_no_end_within(chat, tmp_path):
    """A row that would write one ends there: no end stands in a text, whatever a grammar allows."""
    values = ("The Mill", "The Vaults")
    tokenizer = load_checkpoint(str(chat)).tokenizer
    first = tokenizer(values[0], add_special_tokens=False)["input_ids"]
    folder = shutil.copytree(chat, tmp_path / "more")
    for end in first:
        name_ends(folder, [EOS, end], None)
        decoder = blind_decoder(
            load(folder, device="cpu"), Rows(tree_of([Field("name", enum=values)]))
        )
        (made,) = decoder.texts([SOURCES[0]])
        assert all(end not in tokens[:-1] for _, tokens in made.grid)
        assert made.fields.get("name") in (None, *values)


def test_a_chat_has_the_end_of_a_turn_beside_the_ends_of_its_files(chat, tmp_path):
    folder = shutil.copytree(chat, tmp_path / "more")
    name_ends(folder, [EOS, 5], [EOS, 9])
    decoder = load(folder, device="cpu")
    turn = decoder.text.tokenizer.convert_tokens_to_ids("<|im_end|>")
    for is_chat, ends in (
        (False, (EOS, 5, 9)),
        (True, (turn, EOS, 5, 9)),
        (False, (EOS, 5, 9)),
    ):
        decoder.read_sources(chat=is_chat)
        method = decoder.method()
        assert decoder.checkpoint.ends == ends
        assert (method.eos, method.ends) == (ends[0], {*ends})


def test_the_main_end_is_the_tokenizers_if_the_files_name_it(chat, tmp_path):
    folder = shutil.copytree(chat, tmp_path / "more")
    for named, main in (([5, EOS], EOS), ([5, 9], 5)):
        name_ends(folder, named, None)
        assert load(folder, device="cpu").checkpoint.eos == main


# --- Files
# ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["t5", "llama"])
def test_ends_in_generation_config_count_in_the_fingerprint(kind, tmp_path):
    folder = elsewhere(kind, tmp_path)
    prints = []
    for generation in (None, EOS, [EOS], [EOS, 5], [EOS, 7]):
        name_ends(folder, EOS, None)
        if generation is not None:
            (folder / "generation_config.json").write_text(
                json.dumps({"eos_token_id": generation})
            )
        prints.append(fingerprint(load_checkpoint(str(folder))))
    assert len({*prints[-3:]}) == 3
    assert kind != "t5" or len({*prints}) == 3  # what names nothing new changes no text


@pytest.mark.parametrize(
    "content", ['{"eos_token_id": [1, 400000]}', '{"eos_token_id": "x"}', "[1]", "{"]
)
def test_a_generation_config_that_names_no_token_is_refused_by_its_name(
    content, tmp_path
):
    folder = elsewhere("llama", tmp_path)
    (folder / "generation_config.json").write_text(content)
    for consume in (True, False):
        with pytest.raises(UserError) as error:
            load(folder, device="cpu", consume=consume)
        assert (
            error.value.where.removesuffix(":1") == f"{folder}/generation_config.json"
        )


def test_what_is_trained_from_a_model_with_several_ends_has_one_and_keeps_more_if_they_are_named(
    tmp_path,
):
    base = foreign(tmp_path / "base")
    name_ends(base, [5, EOS], [5, EOS, 9])
    made = start_checkpoint(str(base), SETTINGS, [], 0)
    save_checkpoint(made, tmp_path / "made")
    for name in ("config.json", "generation_config.json"):
        assert read_json(tmp_path / "made" / name)["eos_token_id"] == EOS
    name_ends(tmp_path / "made", [EOS, 9], None)
    again = load_checkpoint(str(tmp_path / "made"))
    assert again.ends == (EOS, 9)
    save_checkpoint(again, tmp_path / "again")
    assert load_checkpoint(str(tmp_path / "again")).ends == (EOS, 9)


def test_a_student_of_the_shape_of_its_teacher_has_one_end_and_the_teacher_all(
    tmp_path,
):
    base = foreign(tmp_path / "base")
    name_ends(base, [EOS, 5], None)
    teacher = load_checkpoint(str(base))
    student = start_checkpoint("scratch", SETTINGS, [], 0, like=teacher)
    assert (student.ends, teacher.ends) == ((EOS,), (EOS, 5))
