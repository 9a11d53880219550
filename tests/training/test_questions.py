"""Questions as they are learnt: the rows of blind decoding, token for token, and with the same probabilities."""

import random
from dataclasses import replace

import pytest
import torch
from msgspec import structs

from pipedec_cli.data.fields import Field
from pipedec_cli.data.records import Record, Segmentation
from pipedec_cli.decoding.blind import blind_decoder
from pipedec_cli.decoding.decoder import Decoder
from pipedec_cli.model.checkpoint import PLAIN, load_checkpoint
from pipedec_cli.model.engine.engine import Engine
from pipedec_cli.model.scratch import make_model
from pipedec_cli.objects.rows import Rows
from pipedec_cli.objects.tree import tree_of
from pipedec_cli.pipeline.decode import Row
from pipedec_cli.pipeline.grid import Slot
from pipedec_cli.training.collate import IGNORED, asked_rows, collator, encode
from pipedec_cli.training.loss import TeacherForcing, full_states, head_of
from pipedec_cli.training.order import Turn
from pipedec_cli.training.questions import synonyms_of
from tests.checkpoints import SMALL, TOLD
from tests.model.chats import chat_tokenizer

WORDS = sorted({word for source, _ in TOLD for word in source.split()})
NAME, OPEN = Field("name"), Field("open", "boolean")
MENU = (
    Field("menu[].dish", path=("menu", 0, "dish")),
    Field("menu[].price", "number", path=("menu", 0, "price")),
)


def model_of(family, folder):
    """A model that knows nothing, with a chat template."""
    tokenizer = chat_tokenizer()
    torch.manual_seed(0)
    shape = replace(SMALL, family=family, dropout=0.0)
    make_model(shape, len(tokenizer)).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return load_checkpoint(str(folder))


@pytest.fixture(scope="module")
def llama(tmp_path_factory):
    return model_of("llama", tmp_path_factory.mktemp("llama"))


def taught(checkpoint, *, chat=False, **sets):
    """The checkpoint as a training on these sets has it."""
    segmentation = Segmentation("field", (), " ", sets=sets)
    settings = structs.replace(
        PLAIN, questions=True, chat=chat, segmentation=segmentation
    )
    checkpoint = replace(checkpoint, settings=settings)
    checkpoint.end_as_usual()
    return checkpoint


def record_of(source, target, name="places", number=1):
    row = (f"{name}/{number}", source, "{}", (), (), "data:1")
    return Record(*row, target_fields=target)


def read(checkpoint, example):
    """Each row of an example as texts: what asks, and what answers."""
    codec = checkpoint.codec()
    rows = {}
    for known, text in zip(example.known, example.texts, strict=True):
        asked = codec.written(known).strip()
        rows[asked] = codec.written(text).strip()
    return rows


def all_asked(checkpoint, records):
    """What the rows of all these records ask."""
    asked = set()
    for example in encoded(checkpoint, *records):
        asked.update(read(checkpoint, example))
    return asked


def encoded(checkpoint, *records):
    return [*encode(checkpoint, records)]


@pytest.mark.parametrize("chat", [True, False])
@pytest.mark.parametrize("family", ["llama", "qwen3", "gemma3"])
def test_rows_have_the_probabilities_in_training_that_decoding_gives_them(
    family, chat, tmp_path
):
    """200 rows and more of records with several keys, all rows of a record in one pass."""
    checkpoint = model_of(family, tmp_path)
    fields = tuple(Field(f"{word} {n}") for n, word in enumerate(WORDS[:20]))
    checkpoint = taught(checkpoint, chat=chat, places=fields)
    draw = random.Random(family)
    lay_out = collator(checkpoint, seed=0)
    engine = Engine(Decoder(checkpoint).weights, 1)
    compared = 0
    for number in range(15):
        source = draw.choices(WORDS, k=12)
        target = {field.name: draw.choice(source) for field in fields[:12]}
        record = record_of(" ".join(source), target, number=number)
        [example] = encoded(checkpoint, record)
        batch = lay_out([(Turn(0, number), example)])
        labels = batch.pop("labels")[0]
        with torch.inference_mode():
            states = full_states(checkpoint.model, *batch.values(), blind=True)
            logits = head_of(checkpoint.model)(states)[0].log_softmax(-1)
        decoded = decoded_chances(engine, batch, labels)
        for place in (labels != IGNORED).nonzero()[:, 0].tolist():
            learnt = logits[place, labels[place]].exp().item()
            assert learnt == pytest.approx(decoded[place], abs=1e-5)
        compared += int(batch["subsequence"].max())
    assert compared >= 200


def decoded_chances(engine, batch, labels):
    """The probability of each label behind its token, in the calls of decoding."""
    engine.admit([(0, batch["input_ids"][0].tolist())])
    rows = []
    numbers = dict[int, int]()
    for place, token in enumerate(batch["decoder_input_ids"][0].tolist()):
        row = int(batch["subsequence"][0, place])
        numbers[row] = numbers.get(row, -1) + 1
        wanted = max(0, int(labels[place]))
        slot = Slot(row, 0, token, number=numbers[row], others=(wanted,))
        rows.append(Row(0, slot))
    _, odds = engine.step_with_odds(rows)
    engine.release(0)
    return [each.others[0] for each in odds]


@pytest.mark.parametrize("chat", [True, False])
def test_rows_are_those_of_decoding_token_for_token(llama, chat):
    fields = (NAME, OPEN, *MENU)
    target = {"name": "Aromi", "open": True, "menu": [{"dish": "soup", "price": 4}]}
    source = "Aromi is open and sells soup for 4."
    checkpoint = taught(llama, chat=chat, places=fields)
    [example] = encoded(checkpoint, record_of(source, target))
    decoder = blind_decoder(Decoder(llama), Rows(tree_of(fields)), chat=chat)
    prompt, _ = decoder.text.source(source)
    asked = {(*prompt, *known) for known in decoder.blind.known}
    learnt = {(*example.source, *known) for known in example.known}
    assert asked <= learnt
    assert len(learnt) == len(asked) + 1  # the price, whose row a name opens


def test_a_key_that_a_record_lacks_has_no_value_and_a_list_has_its_names(llama):
    checkpoint = taught(llama, places=(NAME, OPEN, *MENU))
    dishes = [{"dish": "soup", "price": 4}, {"dish": "soup", "price": 5}]
    record = record_of("Aromi: soup 4, soup 5", {"name": "Aromi", "menu": dishes})
    [example] = encoded(checkpoint, record)
    assert read(checkpoint, example) == {
        "name:": "Aromi",
        "open:": "none",
        "menu:": "soup | soup",
        "menu[1].dish: soup\nmenu[1].price:": "4",
        "menu[2].dish: soup (2)\nmenu[2].price:": "5",
    }
    assert example.lacking == 1


def test_what_a_row_could_not_write_is_not_learnt(llama):
    """A free text that does not stand in the source; a choice need not."""
    kind = Field("kind", enum=("pub", "café"))
    own = Field("mood", keywords=(("x-free", True),))
    checkpoint = taught(llama, places=(NAME, kind, own))
    target = {"name": "The Mill", "kind": "pub", "mood": "merry"}
    [example] = encoded(checkpoint, record_of("A place to drink.", target))
    assert read(checkpoint, example) == {"kind:": "pub", "mood:": "merry"}
    assert example.unwritable == 1


def test_a_record_of_which_nothing_can_be_learnt_has_no_loss(llama):
    checkpoint = taught(llama, places=(NAME,))
    target = {"name": "Aromi"}
    record = record_of("A pub.", target)
    [example] = encoded(checkpoint, record)
    assert not example.texts
    lay_out = collator(checkpoint, seed=0)
    batch = lay_out([(Turn(0, 0), example)])
    module = TeacherForcing(checkpoint.model, blind=True)
    output = module(**batch)
    assert output["loss"] == 0


def test_keys_of_other_sets_have_no_value(llama):
    checkpoint = taught(llama, places=(NAME,), songs=(NAME, Field("singer")))
    records = [record_of("Aromi", {"name": "Aromi"}, number=n) for n in range(9)]
    answers = []
    for example in encoded(checkpoint, *records):
        answers.append(read(checkpoint, example))
    assert {"name:": "Aromi", "singer:": "none"} in answers
    assert {"name:": "none"} not in answers


def test_some_keys_have_the_names_that_their_descriptions_give(llama):
    name = Field("name", description="of the place; also: venue, what it is called")
    assert synonyms_of(name.description) == ["venue", "what it is called"]
    checkpoint = taught(llama, places=(name,))
    records = [record_of("Aromi", {"name": "Aromi"}, number=n) for n in range(40)]
    asked = all_asked(checkpoint, records)
    assert asked == {"name:", "venue:", "what it is called:"}


def test_choices_come_in_any_order(llama):
    kind = Field("kind", enum=("pub", "café", "bar"))
    checkpoint = taught(llama, chat=True, places=(kind,))
    records = [record_of("a", {"kind": "bar"}, number=n) for n in range(40)]
    assert len(all_asked(checkpoint, records)) > 3


def test_some_records_stand_behind_examples_which_came_before(llama):
    checkpoint = taught(llama, chat=True, places=(NAME,))
    records = [
        record_of(f"Mill {n}.", {"name": f"Mill {n}"}, number=n) for n in range(40)
    ]
    examples = encoded(checkpoint, *records)
    codec = checkpoint.codec()
    shown = []
    for example in examples:
        prompt = codec.written(example.source)
        if prompt.count("Text:") > 1:
            shown.append(prompt)
            # Such rows end at a line break, those of a chat with the turn.
            end = example.texts[0][-1:]
            assert codec.written(end) == "\n"
    assert 5 <= len(shown) <= 20
    assert "name: Mill" in shown[0]


def test_an_update_has_twelve_rows_with_a_value_and_a_quarter_as_many_without(llama):
    fields = tuple(Field(f"key {n}") for n in range(40))
    checkpoint = taught(llama, places=fields)
    target = {field.name: "a" for field in fields[:20]}
    [example] = encoded(checkpoint, record_of("a", target))
    rows = asked_rows(example, 0, Turn(0, 0))
    filled = [row for row in rows if row < 20]
    assert (len(filled), len(rows)) == (12, 15)
    assert rows == asked_rows(example, 0, Turn(0, 0))
    assert rows != asked_rows(example, 0, Turn(1, 0))
