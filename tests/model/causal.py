"""Small decoder-only models of each family, grids behind their prompts, and what transformers says to the same."""

import itertools
from functools import cache

import torch

from pipedec_cli.pipeline.decode import Row
from pipedec_cli.pipeline.grid import Slot
from tests.oracle import Placed, oracle_prompted_logits

VOCABULARY = 43
#: Windows, frequencies of several kinds, layers without positions, heads that fill no panel, tied and untied heads.
_SIZES = {"vocab_size": VOCABULARY, "hidden_size": 24, "intermediate_size": 37, "num_hidden_layers": 3}
_SIZES |= {"num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 10, "max_position_embeddings": 512}
_SIZES |= {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}
_LLAMA3 = {"rope_type": "llama3", "rope_theta": 1000.0, "factor": 4.0, "low_freq_factor": 1.0}
_LLAMA3 |= {"high_freq_factor": 4.0, "original_max_position_embeddings": 32}
_YARN = {"rope_type": "yarn", "rope_theta": 1000.0, "factor": 4.0, "original_max_position_embeddings": 128}
_LINEAR = {"rope_type": "linear", "rope_theta": 1000.0, "factor": 3.0}
_WINDOW, _WHOLE = "sliding_attention", "full_attention"
KINDS = {
    "llama": ("llama", {"tie_word_embeddings": False}),
    "llama, frequencies of Llama 3, tied": (
        "llama",
        {"tie_word_embeddings": True, "rope_parameters": _LLAMA3, "num_key_value_heads": 4},
    ),
    "llama, YaRN": ("llama", {"rope_parameters": _YARN, "num_key_value_heads": 1}),
    "qwen2": ("qwen2", {"tie_word_embeddings": True}),
    "qwen2, windows": (
        "qwen2",
        {"use_sliding_window": True, "sliding_window": 9, "layer_types": [_WHOLE, _WINDOW, _WHOLE]},
    ),
    "qwen3": ("qwen3", {"tie_word_embeddings": True, "head_dim": 34}),
    "qwen3, windows": (
        "qwen3",
        {
            "use_sliding_window": True,
            "sliding_window": 9,
            "layer_types": [_WHOLE, _WINDOW, _WINDOW],
            "rope_parameters": _LINEAR,
        },
    ),
    "smollm3": ("smollm3", {"no_rope_layers": [1, 0, 1], "tie_word_embeddings": True}),
    "smollm3, windows": (
        "smollm3",
        {"no_rope_layers": [0, 1, 0], "use_sliding_window": True, "sliding_window": 40},
    ),
    "gemma3": (
        "gemma3_text",
        {"sliding_window": 11, "layer_types": [_WINDOW, _WHOLE, _WINDOW], "query_pre_attn_scalar": 7},
    ),
    "gemma3, capped logits": (
        "gemma3_text",
        {"num_key_value_heads": 1, "final_logit_softcapping": 3.0, "tie_word_embeddings": False},
    ),
}


@cache
def causal_model(kind, seed=0):
    """Of random weights, those of norms included. It is shared: not to be changed."""
    from transformers import AutoConfig, AutoModelForCausalLM

    family, special = KINDS[kind]
    config = AutoConfig.for_model(family, **_SIZES | special)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = AutoModelForCausalLM.from_config(config).eval()
        with torch.no_grad():
            for name, parameter in model.named_parameters():
                if parameter.dim() == 1:
                    parameter.add_(torch.empty_like(parameter).uniform_(-0.3, 0.3))
                elif "embed" in name:
                    parameter.normal_(0, 0.4)
                else:
                    parameter.normal_(0, 1.4 * parameter.shape[1] ** -0.5)
    return model


def prompt_of(length, seed=0):
    """A prompt of any tokens."""
    return [(7 * seed + 11 * n + n * n) % VOCABULARY for n in range(length)]


def row(sequence, subsequence, time, token=None, *, answers=True):
    """A row of a call; its token follows from its place unless told."""
    if token is None:
        token = (5 * subsequence + 3 * time + 17 * sequence) % VOCABULARY
    return Row(sequence, Slot(subsequence, time, token, answers=answers))


def calls_of(sequence, starts, lengths, keys=()):
    """The calls of a grid whose row i begins at a start and has so many tokens behind its key of some tokens."""
    keys = keys or [0] * len(starts)
    calls = []
    for time in range(max(map(sum, zip(starts, lengths, strict=True)))):
        call = []
        for number, (start, length, key) in enumerate(zip(starts, lengths, keys, strict=True), 1):
            if time == start:
                call += [row(sequence, number, start - back, answers=False) for back in range(key, 0, -1)]
            if start <= time < start + length:
                call.append(row(sequence, number, time))
        if call:
            calls.append(call)
    return calls


def expected_logits(model, prompt, calls):
    """What transformers' own model says behind each row of the calls, in one call without a cache: float32 [rows, vocabulary].

    The longest key is in the first call.
    """
    grid = [Placed(slot.subsequence, slot.time, slot.token) for _, slot in flat(calls)]
    known = max(0, -min(slot.time for _, slot in calls[0]))
    return oracle_prompted_logits(model, prompt, grid, known).float()


def flat(calls):
    """The rows of all calls."""
    return list(itertools.chain.from_iterable(calls))
