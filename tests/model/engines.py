"""A small model of each family, what an engine decodes with it, and what the oracle says to the same."""

import copy
from functools import cache

import pytest
import torch
from torch import nn

from pipedec_cli.model.engine.engine import Engine, lay_out
from pipedec_cli.model.engine.native.build import BuildError
from pipedec_cli.model.engine.native.library import library
from pipedec_cli.model.engine.torch.block import can_prepack
from pipedec_cli.model.engine.torch.operators import TorchStepper
from pipedec_cli.model.training.loss import full_states, head_of
from pipedec_cli.pipeline.decode import Finished, Row, decode
from pipedec_cli.pipeline.grid import Limits, Method, Slot
from pipedec_cli.pipeline.schedule import Fixed, RandomStarts, Waiting, Whole
from tests import fakes
from tests.model import backbones
from tests.model.backbones import ENCODED, PROMPTED
from tests.oracle import next_logits_of

KINDS = ("t5", "gated", "mt5", "umt5")
FAMILIES = (*PROMPTED, *ENCODED)
BOS, EOS = 0, 1
VOCABULARY = 40
#: Sources of different lengths; one holds the pad id in its midst, which must count as any other token does.
SOURCES = ([5, 9, 2, 11, 3, 1], [7, 1], [30, 0, 31, 0, 1], [8, 8, 21, 13, 34, 5, 17, 28, 4, 1], [12, 39, 1])
#: Seeds whose models answer with texts of many lengths, failed explorations among them.
_SEEDS = {"t5": 1, "gated": 4, "mt5": 4, "umt5": 0}


@cache
def small_model(kind):
    """Two layers of random weights whose texts have several subsequences. It is shared: not to be changed.

    ``t5`` is the first T5 (ReLU, scaled output, tied), ``gated`` is laid out as v1.1 and Flan-T5 are: gated GELU,
    no scaling, an output matrix of its own.
    """
    from transformers import AutoConfig, AutoModelForSeq2SeqLM

    special = {"feed_forward_proj": "gated-gelu", "tie_word_embeddings": False}
    sizes = {"vocab_size": VOCABULARY, "d_model": 32, "d_kv": 8, "d_ff": 48, "num_layers": 2, "num_heads": 4}
    sizes |= {"relative_attention_num_buckets": 8, "relative_attention_max_distance": 12, "dropout_rate": 0.0}
    sizes |= {"pad_token_id": BOS, "eos_token_id": EOS, "decoder_start_token_id": BOS}
    sizes |= special if kind == "gated" else {}
    config = AutoConfig.for_model("t5" if kind == "gated" else kind, **sizes)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(_SEEDS[kind])
        model = AutoModelForSeq2SeqLM.from_config(config).eval()
        with torch.no_grad():
            if kind == "gated":
                model.lm_head.weight = nn.Parameter(torch.randn(VOCABULARY, 32))
            for stack in (model.encoder, model.decoder):
                for name, parameter in stack.named_parameters():
                    if name.endswith(("o.weight", "relative_attention_bias.weight")):
                        parameter.mul_(3)  # what stands around a token, and where, has a say
                    elif name.endswith("layer_norm.weight"):
                        parameter.uniform_(0.7, 1.3)
            model.lm_head.weight[EOS] *= 3  # texts end
    return model


def odd_model():
    """A new T5 whose sizes fill no panel of the compiled kernels."""
    from transformers import T5Config, T5ForConditionalGeneration

    sizes = {"vocab_size": 71, "d_model": 21, "d_kv": 6, "d_ff": 37}
    config = T5Config(num_layers=2, num_heads=3, feed_forward_proj="gated-gelu", **sizes)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return T5ForConditionalGeneration(config).eval()


#: Two best logits closer than this are a near-tie: float32 rounding may turn them round.
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


try:
    library()
    missing = ""
except BuildError as error:
    missing = str(error)
needs_int8 = pytest.mark.skipif(bool(missing) or not library().kinds & 1, reason="no int8 here")
needs_kernels = pytest.mark.skipif(bool(missing), reason=missing or "the kernels are there")
needs_packing = pytest.mark.skipif(not can_prepack(torch.float32), reason="no oneDNN kernels here")
#: What the kernels compute.
DTYPES = [
    *(pytest.param(dtype, marks=needs_kernels) for dtype in (torch.float32, torch.bfloat16)),
    *(pytest.param(dtype, marks=needs_int8) for dtype in (torch.int8, torch.int4)),
]
in_every_dtype = pytest.mark.parametrize("dtype", DTYPES)

needs_gpu = (
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device"),
)
#: What takes the steps, and what it needs; ``fixed`` is torch's operators in the shapes of a GPU's graphs.
_NEEDS = {"plain": (), "packed": needs_packing, "fixed": (), "native": needs_kernels, "graphs": needs_gpu}
STEPPINGS = [pytest.param(stepping, marks=needs) for stepping, needs in _NEEDS.items()]


def engines_of(*kinds):
    """Has a test run for each of some kinds of models with all that can take its steps."""
    pairs = []
    for kind in kinds:
        missing = set() if kind in KINDS else {"packed"} if kind in PROMPTED else {"packed", "native"}
        pairs += [
            pytest.param(kind, step, marks=needs) for step, needs in _NEEDS.items() if step not in missing
        ]
    return pytest.mark.parametrize(("kind", "stepping"), pairs)


def model_of(kind):
    return small_model(kind) if kind in KINDS else backbones.family_model(kind)


def sources_of(kind):
    return SOURCES if kind in KINDS else backbones.family_sources(kind)


def bos_of(kind):
    return BOS if kind in KINDS else backbones.BOS


@cache
def expected_of(kind, schedule, empty_rows, source, *more):
    """The oracle's answer, kept for the tests that ask again."""
    asked = (*SCHEDULES[schedule], empty_rows, *more)
    return ask_oracle(model_of(kind), sources_of(kind)[source], *asked, bos=bos_of(kind))


def ask_oracle(model, source, *asked, **ids):
    return fakes.ask_oracle(next_logits_of(model, source), *asked, **ids)


@cache
def weights_of(kind, stepping):
    if stepping == "native":
        return lay_out(model_of(kind), native=True)
    if stepping == "graphs":
        return lay_out(copy.deepcopy(model_of(kind)).to("cuda"))
    return lay_out(model_of(kind), prepack=stepping == "packed")


def make_engine(kind, stepping, sequences):
    engine = Engine(None, sequences, weights=weights_of(kind, stepping))
    if stepping == "fixed":
        engine.stepper = TorchStepper(engine.weights.stepping, sequences, fixed=True)
    return engine


def narrowed_copy(model, dtype):
    """A copy with weights in bfloat16 if that is the dtype. Frequencies stay as they were, as transformers loads them."""
    model = copy.deepcopy(model)
    if dtype == torch.bfloat16:
        for parameter in model.parameters():
            parameter.data = parameter.data.bfloat16()
    return model


def compiled(model, dtype):
    """A copy of a model laid out for the kernels in a dtype."""
    return lay_out(
        narrowed_copy(model, dtype),
        native=True,
        quantize=dtype if dtype in (torch.int8, torch.int4) else None,
    )


def last_logits(weights, calls, *sources):
    """The logits of the last call of a new engine, which takes the sources in one after the other."""
    engine = Engine(None, len(sources), weights=weights)
    for newcomer in enumerate(sources):
        engine.admit([newcomer])
    return [engine.logits(rows) for rows in calls][-1].float()


def method_of(schedule, empty_rows="retry", *more, kind="t5"):
    return Method(SCHEDULES[schedule][0], bos_of(kind), EOS, SCHEDULES[schedule][1], empty_rows, *more)


def grid_rows(sequence, count, first=0):
    """Rows of a grid of four subsequences with Δt = 1, in the order of their times."""
    rows = []
    for n in range(first, first + count):
        subsequence, token = n % 4 + 1, (7 * sequence + 3 * n) % (VOCABULARY - 2) + 2
        rows.append(Row(sequence, Slot(subsequence, n // 4 + subsequence, token)))
    return rows


def run_engine(engine, sources, method):
    """All sources through an engine, with all of its sequences in use: rows, steps and what cut each."""
    events = decode(engine, enumerate(sources), method, engine.sequences)
    found = {event.example: event.grid for event in events if isinstance(event, Finished)}
    grids = [found[number] for number in range(len(sources))]
    return [(fakes.rows_of(grid), grid.steps, grid.truncated) for grid in grids]


def outcome_of(result):
    """What the oracle says, as `run_engine` would."""
    return result.rows, result.steps, result.truncated


def expected_outcomes(kind, schedule, empty_rows="retry", *more, count=None):
    """The oracle's outcomes of the sources, none of which has a near-tie."""
    results = [
        expected_of(kind, schedule, empty_rows, number, *more) for number in range(count or len(SOURCES))
    ]
    assert min(result.gap for result in results) >= TIE
    return [outcome_of(result) for result in results]


class Recorder:
    """An engine whose rows and logits are kept, by sequence."""

    def __init__(self, engine, sources, method):
        self.engine, self.admit, self.release = engine, engine.admit, engine.release
        self.sources = sources
        self.kept = [[] for _ in sources]
        list(decode(self, enumerate(sources), method, sequences=len(sources)))

    def step(self, rows):
        logits = self.engine.logits(rows)
        for row, scores in zip(rows, logits.float().cpu(), strict=True):
            self.kept[row.sequence].append((row, scores))
        return logits.argmax(dim=-1).tolist()

    def cached(self, sequence):
        return torch.stack([scores for _, scores in self.kept[sequence]])

    def both(self, model, sequence):
        """The cached logits of a sequence, and the teacher-forced ones of the same tokens."""
        slots = [row.slot for row, _ in self.kept[sequence]]
        places = torch.tensor([[slot.token, slot.subsequence, slot.time] for slot in slots]).T[:, None]
        ids = torch.tensor([self.sources[sequence]])
        with torch.no_grad():
            states = full_states(model, ids, torch.ones_like(ids), *places)
            exact = head_of(model)(states)[0].float()
        return self.cached(sequence), exact
