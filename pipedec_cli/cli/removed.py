"""Settings that are gone, by command: what to do instead, for those who still give them."""

from typing import Final

_RECIPE: Final = "give the file that ships with pipedec: --config NAME"
_PROTOCOL: Final = "the protocol says it"
_AS_TRAINED: Final = "it is as trained; `pipedec generate` still has the key"
_PREFIX: Final = "write it before the source: {} 'PREFIX{{source}}'"
_REPEATS: Final = "three passes are timed"

_REMOVED: Final = {
    "segment": {
        "keep": "choose the keys with --fields",
        "sub_max": "it is 20; `pipedec generate` still has the key",
        "recipe": _RECIPE,
    },
    "train": {
        "family": "name it with the model: --model scratch-tiny-llama",
        "checkpoint_activations": "it is as the model's size asks for",
        "evaluations": "it is as the length of the training allows",
        "dev_examples": "it is 200; give `pipedec segment` a smaller --dev for fewer",
        "keep_checkpoints": "two stay, and may be deleted",
        "source_prefix": _PREFIX.format("--set prompt_template="),
        "recipe": _RECIPE,
    },
    "generate": {
        "source_prefix": _PREFIX.format("--prompt-template"),
        "recipe": _RECIPE,
    },
    "serve": {
        "grace": "it is 30 seconds",
        "source_prefix": _PREFIX.format("--set prompt_template="),
    },
    "score": {
        "stemmer": _PROTOCOL,
        "pretokenized": _PROTOCOL,
        "hard": _PROTOCOL,
        "autojunk": _PROTOCOL,
        "recipe": _RECIPE,
    },
    "report": {
        "empty_rows": _AS_TRAINED,
        "stop_on_repeat": _AS_TRAINED,
        "protocol": "the task of the data says it; `pipedec score` has --protocol",
        "repeats": _REPEATS,
        "recipe": _RECIPE,
    },
    "bench": {"repeats": _REPEATS},
}


def instead_of(name: str, command: str) -> str | None:
    """What to do instead of giving a setting that a command had once; None if it never had it."""
    bare = name.lstrip("-").replace("-", "_")
    return _REMOVED.get(command, {}).get(bare)
