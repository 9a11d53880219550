"""A small model of each family, what an engine decodes with it, and what the oracle says to the same."""

import copy
import itertools
import random
import re
from dataclasses import replace
from functools import cache

import pytest
import torch
from torch import nn

from pipedec_cli.model.engine.engine import Engine, lay_out
from pipedec_cli.model.engine.native import kinds
from pipedec_cli.model.engine.native.library import BuildError, library
from pipedec_cli.pipeline.decode import Row
from pipedec_cli.pipeline.grid import ItemRows, Limits, Method, Opening, Slot, mask_of
from pipedec_cli.pipeline.schedule import (
    Fixed,
    Listed,
    RandomStarts,
    Together,
    Waiting,
    Whole,
)
from tests import fakes
from tests.oracle import (
    OracleSchedule,
    Placed,
    next_logits_of,
    oracle_blind,
    oracle_listed,
    oracle_prompted_logits,
    oracle_together,
)

# --- Models
# -----------------------------------------------------------------------------------------------------------

KINDS = ("t5", "gated", "mt5", "umt5")
#: Decoder-only models: compiled, and such as transformers' modules compute.
COMPILED = (
    "llama",
    "qwen2",
    "qwen3",
    "smollm3",
    "gemma3_text",
    "mistral",
    "phi3",
    "olmo2",
    "granite",
    "gemma2",
)
MODULES = ("mixtral", "qwen3_moe", "exaone4", "stablelm", "glm4", "cohere")
PROMPTED = (*COMPILED, *MODULES)
ENCODED = ("t5gemma", "t5gemma2", "bart", "pegasus", "mbart", "marian", "m2m_100")
FAMILIES = (*PROMPTED, *ENCODED)
BOS, EOS = 0, 1
VOCABULARY = 40
#: Sources of different lengths. One has the pad id in its midst, which counts as any
#: other token does.
SOURCES = (
    [5, 9, 2, 11, 3, 1],
    [7, 1],
    [30, 0, 31, 0, 1],
    [8, 8, 21, 13, 34, 5, 17, 28, 4, 1],
    [12, 39, 1],
)
PROMPTS = (
    [5, 9, 2, 11, 3, 8],
    [7, 4],
    [30, 0, 31, 1, 0, 33],
    [8, 8, 21, 13, 34, 5, 17, 28, 4, 9],
    [12, 39],
)

_HALF = {
    "vocab_size": VOCABULARY,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
}
_HALF |= {"num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 8}
_IDS = {"pad_token_id": 0, "bos_token_id": 2, "eos_token_id": EOS}
#: Layers that see four places back take turns with layers that see all.
_WINDOWS = {"sliding_window": 4, "layer_types": ["sliding_attention", "full_attention"]}
_EYE = {
    "hidden_size": 16,
    "intermediate_size": 16,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
}
_EYE |= {"image_size": 56, "patch_size": 14}
_MULTIPLIED = {
    "embedding_multiplier": 3.0,
    "attention_multiplier": 0.3,
    "residual_multiplier": 0.6,
}
_MULTIPLIED |= {"logits_scaling": 2.0}
_CAPPED = {
    "attn_logit_softcapping": 2.0,
    "final_logit_softcapping": 5.0,
    "query_pre_attn_scalar": 5,
}
_BART = {
    "vocab_size": VOCABULARY,
    "d_model": 32,
    "max_position_embeddings": 80,
    "decoder_start_token_id": 2,
}
_BART |= {
    f"{half}_{name}": 2
    for half in ("encoder", "decoder")
    for name in ("layers", "attention_heads")
}
_BART |= {"encoder_ffn_dim": 48, "decoder_ffn_dim": 48, "forced_eos_token_id": None}
_T5 = {
    "vocab_size": VOCABULARY,
    "d_model": 32,
    "d_kv": 8,
    "d_ff": 48,
    "num_layers": 2,
    "num_heads": 4,
}
_T5 |= {
    "relative_attention_num_buckets": 8,
    "relative_attention_max_distance": 12,
    "dropout_rate": 0.0,
}
_T5 |= {"pad_token_id": BOS, "eos_token_id": EOS, "decoder_start_token_id": BOS}
#: Sizes, and a seed with which texts have many lengths, failed explorations among them.
#: `gated` is a T5 as v1.1 and Flan-T5 are: gated GELU, no scaling, an output matrix of
#: its own.
_CONFIGS = {
    "t5": (_T5, 1),
    "gated": (
        _T5 | {"feed_forward_proj": "gated-gelu", "tie_word_embeddings": False},
        4,
    ),
    "mt5": (_T5, 4),
    "umt5": (_T5, 0),
    "llama": (_HALF | _IDS, 7),
    "qwen2": (_HALF | _IDS, 7),
    "qwen3": (_HALF | _IDS, 5),
    "smollm3": (_HALF | _IDS | {"no_rope_layers": [1, 0]}, 7),
    "gemma3_text": (_HALF | _IDS | _WINDOWS, 1),
    "mistral": (_HALF | _IDS | {"sliding_window": 4}, 0),
    "phi3": (_HALF | _IDS, 1),
    "olmo2": (_HALF | _IDS, 0),
    "granite": (_HALF | _IDS | _MULTIPLIED, 0),
    "gemma2": (_HALF | _IDS | _WINDOWS | _CAPPED, 0),
    "mixtral": (_HALF | _IDS | {"num_local_experts": 4}, 0),
    "qwen3_moe": (
        _HALF
        | _IDS
        | {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 24},
        0,
    ),
    "exaone4": (_HALF | _IDS | _WINDOWS, 0),
    "stablelm": (_HALF | _IDS, 0),
    "glm4": (_HALF | _IDS, 0),
    "cohere": (_HALF | _IDS, 5),
    "t5gemma": (
        {
            "encoder": _HALF | _IDS | _WINDOWS,
            "decoder": _HALF | _IDS | _WINDOWS,
            **_IDS,
        },
        3,
    ),
    "t5gemma2": (
        {
            "encoder": {"text_config": _HALF | _IDS | _WINDOWS, "vision_config": _EYE},
            "decoder": _HALF | _IDS | _WINDOWS,
            **_IDS,
        },
        0,
    ),
    "bart": (_BART | _IDS | {"tie_word_embeddings": False}, 1),
    "pegasus": (_BART | _IDS, 7),
    "mbart": (_BART | _IDS, 0),
    "marian": (_BART | _IDS, 0),
    "m2m_100": (_BART | _IDS, 1),
}

#: Decoder-only models whose sizes fill no panel: windows, frequencies, layers without
#: positions, tied and untied heads.
_CAUSAL = {
    "vocab_size": 43,
    "hidden_size": 24,
    "intermediate_size": 37,
    "num_hidden_layers": 3,
}
_CAUSAL |= {
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 10,
    "pad_token_id": 0,
}
_CAUSAL |= {"max_position_embeddings": 512, "bos_token_id": 1, "eos_token_id": 2}
_LLAMA3 = {
    "rope_type": "llama3",
    "rope_theta": 1000.0,
    "factor": 4.0,
    "low_freq_factor": 1.0,
}
_LLAMA3 |= {"high_freq_factor": 4.0, "original_max_position_embeddings": 32}
_YARN = {
    "rope_type": "yarn",
    "rope_theta": 1000.0,
    "factor": 4.0,
    "original_max_position_embeddings": 128,
}
_LINEAR = {"rope_type": "linear", "rope_theta": 1000.0, "factor": 3.0}
_WINDOW, _WHOLE = "sliding_attention", "full_attention"
_NINE = {"use_sliding_window": True, "sliding_window": 9}
CAUSAL = {
    "llama, no panel": {"tie_word_embeddings": False},
    "llama, tied": {
        "tie_word_embeddings": True,
        "rope_parameters": _LLAMA3,
        "num_key_value_heads": 4,
    },
    "llama, YaRN": {"rope_parameters": _YARN, "num_key_value_heads": 1},
    "qwen2, tied": {"tie_word_embeddings": True},
    "qwen2, windows": _NINE | {"layer_types": [_WHOLE, _WINDOW, _WHOLE]},
    "qwen3, tied": {"tie_word_embeddings": True, "head_dim": 34},
    "qwen3, windows": _NINE
    | {"layer_types": [_WHOLE, _WINDOW, _WINDOW], "rope_parameters": _LINEAR},
    "smollm3, tied": {"no_rope_layers": [1, 0, 1], "tie_word_embeddings": True},
    "smollm3, windows": {
        "no_rope_layers": [0, 1, 0],
        "use_sliding_window": True,
        "sliding_window": 40,
    },
    "gemma3_text, windows": {
        "sliding_window": 11,
        "layer_types": [_WINDOW, _WHOLE, _WINDOW],
        "query_pre_attn_scalar": 7,
    },
    "mistral, windows": {"sliding_window": 9},
    "phi3, fused": {"sliding_window": None, "tie_word_embeddings": True},
    "olmo2, norms behind": {"num_key_value_heads": 4, "tie_word_embeddings": True},
    "granite, multiplied": _MULTIPLIED,
    "gemma2, capped": _CAPPED
    | {"sliding_window": 11, "layer_types": [_WHOLE, _WINDOW, _WHOLE]},
    "gemma3_text, capped": {
        "num_key_value_heads": 1,
        "final_logit_softcapping": 3.0,
        "tie_word_embeddings": False,
    },
}
#: A T5 whose sizes fill no panel of the compiled kernels.
ODD = "odd"


@cache
def small_model(kind):
    """A model of few layers and random weights, those of norms included. It is shared: not to be changed."""
    import transformers

    family, sizes, seed = kind.split(",")[0], *_CONFIGS.get(kind, ({}, 0))
    family = "t5" if kind in ("gated", ODD) else family
    if kind in CAUSAL:
        sizes = _CAUSAL | CAUSAL[kind]
    elif kind == ODD:
        sizes = {
            "vocab_size": 71,
            "d_model": 21,
            "d_kv": 6,
            "d_ff": 37,
            "num_layers": 2,
            "num_heads": 3,
        }
        sizes |= {"feed_forward_proj": "gated-gelu"}
    config = transformers.AutoConfig.for_model(family, **sizes)
    make = (
        transformers.AutoModelForCausalLM
        if family in PROMPTED
        else transformers.AutoModelForSeq2SeqLM
    )
    with torch.random.fork_rng(devices=[]), torch.no_grad():
        torch.manual_seed(seed)
        model = make.from_config(config).eval()
        if kind in KINDS:
            _vary_t5(model, kind)
        elif kind != ODD:
            _vary(model, kind)
    return model


def _vary_t5(model, kind):
    """What stands around a token, and where, has a say, and texts end."""
    if kind == "gated":
        model.lm_head.weight = nn.Parameter(torch.randn(VOCABULARY, 32))
    for stack in (model.encoder, model.decoder):
        for name, parameter in stack.named_parameters():
            if name.endswith(("o.weight", "relative_attention_bias.weight")):
                parameter.mul_(3)
            elif name.endswith("layer_norm.weight"):
                parameter.uniform_(0.7, 1.3)
    model.lm_head.weight[EOS] *= 3


def _vary(model, kind):
    """Texts of `FAMILIES` end after a few tokens."""
    # Gemmas multiply their embeddings before the first layer, or have them as the
    # output matrix as well.
    spread = 1.0
    if kind in ("gemma3_text", "gemma2", "t5gemma", "t5gemma2"):
        spread = 0.1
    if kind in CAUSAL:
        spread = 0.4
    for name, parameter in model.named_parameters():
        if "embed_positions" in name and kind != "bart":
            continue
        if parameter.dim() == 1:
            most = 0.3 if kind in CAUSAL else 0.2
            parameter.add_(torch.empty_like(parameter).uniform_(-most, most))
        elif re.search("embed|shared", name):
            parameter.normal_(0, spread)
        else:
            usual = 1.4 * parameter.shape[1] ** -0.5 if kind in CAUSAL else 0.35
            parameter.normal_(0, usual)
    if kind not in CAUSAL:
        head = model.lm_head.out_proj if kind.startswith("t5gemma") else model.lm_head
        head.weight[EOS] *= 4.0 if kind == "bart" else 2.5


def sources_of(kind):
    """The sources. They end with <eos> where an encoder reads them."""
    if kind in ENCODED:
        return [[*prompt, EOS] for prompt in PROMPTS]
    return SOURCES if kind in KINDS else PROMPTS


def bos_of(kind):
    return BOS if kind in KINDS else 2


def is_prompted(kind):
    return kind in PROMPTED or kind in CAUSAL


def narrowed_copy(model, dtype):
    """A copy with weights in bfloat16 if that is the dtype. Frequencies stay as they were, as transformers loads them."""
    model = copy.deepcopy(model)
    if dtype == torch.bfloat16:
        for parameter in model.parameters():
            parameter.data = parameter.data.bfloat16()
    return model


# --- Engines
# ----------------------------------------------------------------------------------------------------------

try:
    library()
    missing = ""
except BuildError as error:
    missing = str(error)
needs_int8 = pytest.mark.skipif(
    bool(missing) or not library().kinds & 1, reason="no int8 here"
)
needs_kernels = pytest.mark.skipif(
    bool(missing), reason=missing or "the kernels are there"
)
#: The ways of multiplying that this CPU has.
WAYS = [] if missing else kinds.ways(library())
#: Rows, inputs and outputs of products: around the sizes of tiles, panels, words, groups
#: and super-groups.
SIZES = [
    (1, 768, 64),
    (4, 4, 32),
    (13, 100, 71),
    (16, 64, 33),
    (33, 63, 5),
    (70, 2500, 96),
]
#: What the kernels compute.
DTYPES = [
    *(
        pytest.param(dtype, marks=needs_kernels)
        for dtype in (torch.float32, torch.bfloat16)
    ),
    *(pytest.param(dtype, marks=needs_int8) for dtype in (torch.int8, torch.int4)),
]
in_every_dtype = pytest.mark.parametrize("dtype", DTYPES)

needs_gpu = (
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device"),
)
#: What takes the steps, and what it needs; ``fixed`` is torch's operators in the shapes
#: of a GPU's graphs.
_NEEDS = {
    "plain": (),
    "fixed": (),
    "native": (needs_kernels,),
    "graphs": needs_gpu,
}
STEPPINGS = [pytest.param(stepping, marks=needs) for stepping, needs in _NEEDS.items()]


#: What takes the steps of these kinds in the default set. Of other kinds the kernels
#: do, or transformers' modules.
_FAST = {
    "t5": {"plain", "fixed", "native", "graphs"},
    "qwen3": {"plain", "native", "graphs"},
}


def engines_of(*kinds, native=(), slow=()):
    """Run a test with all that can take the steps of some kinds; of `native` kinds the kernels, `slow` kinds rarely."""
    pairs = [pytest.param(kind, "native", marks=needs_kernels) for kind in native]
    for kind in kinds:
        by_modules = kind in (*ENCODED, *MODULES)
        without, usual = (
            ({"native"}, {"plain"}) if by_modules else (set(), {"native", "graphs"})
        )
        fast = set() if kind in slow else _FAST.get(kind, usual)
        pairs += [
            pytest.param(
                kind,
                step,
                marks=[*needs, *([] if step in fast else [pytest.mark.slow])],
            )
            for step, needs in _NEEDS.items()
            if step not in without
        ]
    return pytest.mark.parametrize(("kind", "stepping"), pairs)


@cache
def weights_of(kind, stepping):
    if stepping == "native":
        return by_kernels(small_model(kind))
    if stepping == "graphs":
        return lay_out(copy.deepcopy(small_model(kind)).to("cuda"))
    return by_torch(small_model(kind))


def by_kernels(model, quantize=None):
    weights = lay_out(model, quantize=quantize)
    assert weights.kernels.startswith("native"), weights.kernels
    return weights


def by_torch(model):
    """A model laid out for torch."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PIPEDEC_NATIVE", "0")
        return lay_out(model)


def make_engine(kind, stepping, sequences):
    engine = Engine(weights_of(kind, stepping), sequences)
    if stepping == "fixed":
        engine.stepper.fixed = True
    return engine


def compiled(model, dtype):
    """A copy of a model laid out for the kernels in a dtype."""
    return by_kernels(
        narrowed_copy(model, dtype),
        dtype if dtype in (torch.int8, torch.int4) else None,
    )


def all_logits(engine, calls, *sources):
    """The logits of all rows of the calls. The engine takes the sources in one after the other."""
    for newcomer in enumerate(sources):
        engine.admit([newcomer])
    return torch.cat([engine.stepper.logits(rows).float().cpu() for rows in calls])


def logits_of(weights, calls, *sources):
    """The same with a new engine."""
    return all_logits(Engine(weights, len(sources)), calls, *sources)


def run_engine(engine, sources, method):
    """All sources through an engine, with all of its sequences in use: rows, steps and what cut each."""
    ends = fakes.finished(engine, sources, method, engine.sequences)
    return [fakes.outcome_of(ends[number].grid) for number in range(len(sources))]


# --- Rows
# -------------------------------------------------------------------------------------------------------------


def grid_rows(sequence, count, first=0):
    """Rows of a grid of four subsequences with Δt = 1, by subsequence and time: none sees a row behind it."""
    rows = []
    for n in range(first, first + count):
        subsequence, token = n % 4 + 1, (7 * sequence + 3 * n) % (VOCABULARY - 2) + 2
        rows.append(Row(sequence, Slot(subsequence, n // 4 + subsequence, token)))
    return sorted(rows, key=lambda row: row.slot[:2])


def prompt_of(length, seed=0):
    """A prompt of any tokens."""
    return [(7 * seed + 11 * n + n * n) % VOCABULARY for n in range(length)]


def row(sequence, subsequence, time, *, answers=True):
    """A row of a call; its token follows from its place."""
    token = (5 * subsequence + 3 * time + 17 * sequence) % VOCABULARY
    return Row(sequence, Slot(subsequence, time, token, answers=answers))


def calls_of(sequence, starts, lengths, keys):
    """The calls of a grid: row i starts at a time, with a number of known tokens before it, and has a number of tokens."""
    calls = []
    for time in range(max(map(sum, zip(starts, lengths, strict=True)))):
        call = []
        for number, (start, length, key) in enumerate(
            zip(starts, lengths, keys, strict=True), 1
        ):
            if time == start:
                call += [
                    row(sequence, number, start - back, answers=False)
                    for back in range(key, 0, -1)
                ]
            if start <= time < start + length:
                call.append(row(sequence, number, time))
        calls.append(call)
    return list(filter(None, calls))


def random_calls(sequence, seed, keyed=True):
    """The calls of a random grid of 1 to 7 rows, some of them behind known tokens."""
    draw = random.Random(f"{sequence} {seed}")
    starts = [0, *sorted(draw.randint(0, 12) for _ in range(draw.randint(0, 6)))]
    keys = [draw.choice([0, 0, 1, 5]) if keyed else 0 for _ in starts]
    return calls_of(sequence, starts, [draw.randint(1, 25) for _ in starts], keys)


def flat(calls):
    """The rows of all calls."""
    return list(itertools.chain.from_iterable(calls))


def side_by_side(*grids):
    """The calls of several sequences as one: the first calls of all together, then the second ones."""
    return [flat(filter(None, some)) for some in itertools.zip_longest(*grids)]


def exact_logits(model, source, calls):
    """The oracle's logits of the rows of calls, float32 [rows, vocabulary]. The longest key counts that is in the first."""
    grid = [Placed(slot.subsequence, slot.time, slot.token) for _, slot in flat(calls)]
    if model.config.is_encoder_decoder:
        return torch.tensor(next_logits_of(model, source)(grid, range(len(grid))))
    known = max(0, -min(slot.time for _, slot in calls[0]))
    return oracle_prompted_logits(model, source, grid, known).float()


# --- Methods, and what the oracle says
# --------------------------------------------------------------------------------

#: Two best logits closer than this are a near-tie: float32 rounding may turn them
#: round.
TIE = 1e-4
FIXED = Limits(time_max=12, sub_max=5)
SCHEDULES = {
    "1": (Fixed(1), FIXED),
    "2": (Fixed(2), FIXED),
    "3": (Fixed(3), FIXED),
    "wait": (Waiting(), Limits(time_max=None, sub_max=5, max_tokens=20)),
    "whole": (Whole(), Limits(time_max=None, sub_max=None, max_tokens=12)),
    "drawn": (RandomStarts((1, 4, float("inf"), 2)), FIXED),
}
#: A schedule and what it does after an empty row, rows that start together behind their
#: keys, and lists of objects.
METHODS = [
    f"{schedule}, {rule}"
    for schedule in SCHEDULES
    for rule in ("retry", "stop", "repeat")
]
METHODS += [
    "together, any token",
    "together, few tokens",
    "listed, 1",
    "listed, 2",
    "listed, wait",
    "blind",
]
#: The methods that the default set tests with every kind. They differ most in what a
#: model computes.
OFTEN = ("1, retry", "2, retry", "2, stop", "2, repeat", "wait, retry", "drawn, retry")
OFTEN += ("together, few tokens", "listed, 2", "blind")


def methods_of(kind):
    """All of them for a T5; for the other families those that differ in what a model computes."""
    skipped = () if is_prompted(kind) else ("blind",)
    if kind != "t5":
        skipped += (", stop", ", repeat", "listed, 1", "listed, wait")[
            : 2 if kind in KINDS else 4
        ]
    return [name for name in METHODS if not name.endswith(skipped)]


KEYS = ((7, 3), (12,), (30, 8, 3, 9), (), (7, 3))
BLIND_KEYS = ((7, 3), (12,), (30, 8, 3, 9), (7, 3, 20, 21, 22))
BLIND_ENDS = frozenset({4, 6})
LISTS = (0, None, 0, 1)


def _masked(allowed, row):
    return lambda tokens: mask_of(allowed(row, tokens))


def allowed_in(row, tokens):
    """Of every second row the first tokens are some of many, and the later ones of few, the end among them."""
    some = random.Random(f"{row} {len(tokens)}").sample(
        range(2, VOCABULARY), 3 if tokens else 30
    )
    return () if row % 2 else sorted([EOS, *some])


def _allowed_in_blind(row, tokens):
    """Of every second row the tokens are some of many, the end among them."""
    some = random.Random(f"{row} {len(tokens)}").sample(range(2, VOCABULARY), 12)
    return () if row % 2 else sorted({EOS, *some})


def _item_key(leaf, item):
    return [7 + leaf, 3, 8 + item % 5] if leaf != 2 else [12, *[9] * (item == 2)]


def _allowed_in_item(leaf, tokens):
    """Few tokens, so that lists go on for a while and end."""
    some = random.Random(f"{leaf} {len(tokens)}").sample(
        range(2, VOCABULARY), 2 if tokens else 20
    )
    return () if leaf % 2 else sorted([EOS, *some])


def _item_opening(leaf, item):
    return Opening(
        tuple(_item_key(leaf, item)), _masked(_allowed_in_item, leaf), (str(leaf), item)
    )


_LIMITS = Limits(time_max=9, sub_max=2)


def together(
    keys=KEYS,
    allowed=allowed_in,
    limits=_LIMITS,
    kind="t5",
    **more,
):
    openings = tuple(
        Opening(key, _masked(allowed, row)) for row, key in enumerate(keys)
    )
    return Method(Together(), bos_of(kind), EOS, limits, openings=openings, **more)


def method_of(name, kind="t5"):
    name, _, rule = name.partition(", ")
    if name == "together":
        return together(
            allowed=allowed_in if rule == "few tokens" else lambda row, tokens: (),
            kind=kind,
        )
    if name == "blind":
        made = together(
            BLIND_KEYS, _allowed_in_blind, Limits(9, None), blind=True, ends=BLIND_ENDS
        )
        noted = (
            replace(one, end=-1 if row % 2 else EOS)
            for row, one in enumerate(made.openings)
        )
        made = replace(made, openings=tuple(noted))
        return replace(made, bos=EOS)
    if name == "listed":
        lists = [
            ItemRows(
                at, lambda item, at=at: tuple(_item_opening(leaf, item) for leaf in at)
            )
            for at in ((0, 2), (3,))
        ]
        schedule = Listed(Waiting() if rule == "wait" else Fixed(int(rule)), 5)
        openings = tuple(_item_opening(leaf, 1) for leaf in range(4))
        return Method(
            schedule,
            bos_of(kind),
            EOS,
            Limits(14),
            openings=openings,
            lists=tuple(lists),
        )
    schedule, limits = SCHEDULES[name]
    empty_rows = "stop" if rule == "repeat" else rule or "retry"
    return Method(schedule, bos_of(kind), EOS, limits, empty_rows, rule == "repeat")


@cache
def expected_of(kind, name):
    """What the oracle says to each source, without a near-tie. It is kept for the tests that ask again."""
    method, (name, _, rule) = method_of(name, kind), name.partition(", ")
    ids = {"bos": method.bos, "eos": EOS}
    results = []
    for source in sources_of(kind):
        logits = next_logits_of(small_model(kind), source)
        if name == "blind":
            bounds = {
                "ends": {EOS, *BLIND_ENDS},
                "allowed": _allowed_in_blind,
                "time_max": 9,
                "noted": EOS,
            }
            result = oracle_blind(
                small_model(kind), source, BLIND_KEYS, **bounds, early=rule == "early"
            )
        elif name == "together":
            few = allowed_in if rule == "few tokens" else lambda row, tokens: ()
            result = oracle_together(
                logits, KEYS, allowed=few, time_max=method.limits.time_max, **ids
            )
        elif name == "listed":
            schedule = (
                OracleSchedule("wait")
                if rule == "wait"
                else OracleSchedule("fixed", int(rule))
            )
            bounds = {
                "allowed": _allowed_in_item,
                "item_max": 5,
                "time_max": method.limits.time_max,
            }
            result = oracle_listed(logits, _item_key, LISTS, schedule, **bounds, **ids)
        else:
            rules = (method.empty_rows, method.stop_on_repeat)
            result = fakes.ask_oracle(
                logits, method.schedule, method.limits, *rules, **ids
            )
        results.append(result)
    return results
