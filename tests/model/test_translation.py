"""Models for translation: languages are named by their codes, and a text begins as transformers has it begin."""

import json
import shutil
import zlib

import pytest
import torch

from pipedec_cli.decoding.decoder import load
from tests.words import refusing

pytestmark = pytest.mark.filterwarnings("ignore:Recommended")  # sacremoses
SOURCES = [
    "the cat sat on the mat",
    "a dog runs in the park",
    "the house is red",
    "park",
    "a cat is the house",
]
TARGETS = [
    "le chat est sur le tapis",
    "un chien court dans le parc",
    "la maison est rouge",
]
_SIZES = {
    f"{half}_{name}": 2
    for half in ("encoder", "decoder")
    for name in ("layers", "attention_heads")
}
_SIZES |= {
    "d_model": 32,
    "encoder_ffn_dim": 48,
    "decoder_ffn_dim": 48,
    "max_position_embeddings": 64,
}
_SIZES |= {"tie_word_embeddings": False}  # else a token follows itself


def pieces_of(path, texts):
    """A sentencepiece model of these texts, written to a path: its pieces without special ones."""
    import sentencepiece

    with path.open("wb") as file:
        more = {"vocab_size": 60, "hard_vocab_limit": False, "minloglevel": 2}
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=iter(texts * 40), model_writer=file, **more
        )
    model = sentencepiece.SentencePieceProcessor(model_file=str(path))
    return [model.id_to_piece(number) for number in range(3, model.get_piece_size())]


def tokenizer_of(kind, place, vocabulary):
    """A tokenizer of the kind, of what was written to a folder."""
    import transformers

    words = str(place / "vocab.json")
    source = str(place / "source.spm")
    if kind == "marian":
        return transformers.MarianTokenizer(source, str(place / "target.spm"), words)
    if kind == "m2m_100":
        return transformers.M2M100Tokenizer(words, source)
    if kind == "nllb":
        return transformers.NllbTokenizer(vocab=vocabulary, merges=[])
    scored = [(piece, -1.0) for piece in vocabulary]
    return transformers.MBart50Tokenizer(vocab=scored)


def vary(model):
    """Draw the weights so that what a model writes depends on its source."""
    for name, weight in model.named_parameters():
        if weight.dim() == 1 or "embed_positions" in name:
            continue
        spread = 1.5 if "decoder" in name else 0.5
        weight.normal_(0, 0.3 if "shared" in name else spread)


@pytest.fixture(scope="module", params=["marian", "m2m_100", "nllb", "mbart"])
def folder(request, tmp_path_factory):
    """A model of random weights with a tokenizer of the kind. A Marian has pieces of its own for what it writes."""
    import transformers

    kind, place = request.param, tmp_path_factory.mktemp(request.param)
    first = ["</s>", "<unk>"] if kind == "marian" else ["<s>", "<pad>", "</s>", "<unk>"]
    source, target = place / "source.spm", place / "target.spm"
    pieces = dict.fromkeys([*pieces_of(source, SOURCES), *pieces_of(target, TARGETS)])
    vocabulary = {piece: number for number, piece in enumerate([*first, *pieces])}
    ids = {
        "pad_token_id": 1,
        "bos_token_id": 0,
        "eos_token_id": 2,
        "decoder_start_token_id": 2,
    }
    if kind == "marian":
        vocabulary["<pad>"] = pad = len(vocabulary)
        ids = {
            "pad_token_id": pad,
            "decoder_start_token_id": pad,
            "eos_token_id": 0,
            "bos_token_id": 0,
        }
    (place / "vocab.json").write_text(json.dumps(vocabulary))
    tokenizer = tokenizer_of(kind, place, vocabulary)
    size = max(len(tokenizer), len(vocabulary) + 110 * (kind == "m2m_100"))
    family = "m2m_100" if kind == "nllb" else kind
    config = transformers.AutoConfig.for_model(family, vocab_size=size, **_SIZES, **ids)
    with torch.random.fork_rng(devices=[]), torch.no_grad():
        torch.manual_seed(zlib.crc32(kind.encode()))
        model = transformers.AutoModelForSeq2SeqLM.from_config(config)
        vary(model)
    model.save_pretrained(place)
    tokenizer.save_pretrained(place)
    if kind == "m2m_100":
        shutil.copy(source, place / "sentencepiece.bpe.model")
    return place


LANGUAGES = {
    "m2m_100": ("en", "fr"),
    "nllb": ("eng_Latn", "fra_Latn"),
    "mbart": ("en_XX", "fr_XX"),
}


def test_texts_are_those_of_transformers_between_two_languages(folder):
    import transformers

    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    model = transformers.AutoModelForSeq2SeqLM.from_pretrained(folder).eval()
    decoder, more = load(folder, device="cpu"), {}
    if languages := LANGUAGES.get(folder.name[:-1]):  # pytest has put a number behind
        decoder.text.prefix = " ".join(languages)
        tokenizer.src_lang, target = languages
        code = f"__{target}__" if folder.name.startswith("m2m") else target
        more["forced_bos_token_id"] = tokenizer.convert_tokens_to_ids(code)
        with refusing():
            decoder.text.prefix = f"{languages[0]} xx"
    options = {
        "do_sample": False,
        "num_beams": 1,
        "max_new_tokens": 16,
        "forced_eos_token_id": None,
    } | more
    wanted = []
    for source in SOURCES:
        ids = tokenizer(source, return_tensors="pt")
        assert decoder.text.source(source)[0] == ids["input_ids"][0].tolist()
        wanted.append(model.generate(**ids, **options)[0, 1:].tolist())
    assert len({tuple(ids) for ids in wanted}) > 2
    for batch in (1, 4):
        found = decoder.texts(SOURCES, decoder.method(max_tokens=16), batch)
        assert [list(one.grid[0][1]) for one in found] == wanted


def test_a_text_is_learnt_in_the_pieces_in_which_it_is_written(folder):
    text = load(folder, device="cpu").text
    text.prefix = " ".join(LANGUAGES.get(folder.name[:-1], ()))
    wanted = text.tokenizer(text_target=TARGETS, add_special_tokens=False)["input_ids"]
    assert text.ids(TARGETS, written=True) == wanted
    assert [text.decode(ids) for ids in wanted] == TARGETS
    assert (text.ids(TARGETS) == wanted) == (not folder.name.startswith("marian"))
