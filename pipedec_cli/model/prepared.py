"""What transformers makes of a folder's files, kept in the cache: a model that the kernels compute loads without it.

Importing transformers and building its model takes seconds. The first load of a folder keeps the completed config, the
tokenizer, and what a model has beside its weights. Each later load reads these, and the weights of the folder.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Final

import msgspec
import torch
from msgspec import Struct
from safetensors import SafetensorError, safe_open
from torch import Tensor, nn

from pipedec_cli.data.cache import cache_folder, is_safe
from pipedec_cli.data.writing import package_version, write_text
from pipedec_cli.model.engine.native.build import BuildError
from pipedec_cli.model.engine.native.kinds import encoder_dtype
from pipedec_cli.model.engine.native.library import team_library
from pipedec_cli.model.engine.native.specs import describe
from pipedec_cli.model.tokenizer import TokenizerParts, parts_of

#: The files of a folder, its weights apart, that a load depends on.
_READ: Final = ("*.json", "*.jinja", "*.txt", "*.model")
#: Files that change with every training and that no load depends on.
_UNREAD: Final = frozenset({"training.json", "trainer_state.json", "sentences.json"})
#: The most numbers of a buffer that is kept: frequencies of rotary positions have some dozens.
_MOST_NUMBERS: Final = 4096
#: The number of models whose parts are kept, the latest; a file takes as much room as a tokenizer, some MB.
MOST_KEPT: Final = 32


class _Module(Struct, frozen=True, omit_defaults=True):
    """What a module has beside its weights."""

    attributes: dict[str, Any] = {}
    buffers: dict[str, Any] = {}  # numbers in lists; float32


class Prepared(Struct, frozen=True):
    """A model and its tokenizer as transformers completed them, the weights apart."""

    config: dict[str, Any]
    settings: Any  # ours in config.json
    tokenizer: TokenizerParts
    weights: dict[str, list[int]]  # the sizes of those in the files, by name
    unread: list[str]  # names of others in the files, which nothing reads
    shared: dict[str, str]  # weights that are another one of these, by name
    modules: dict[str, _Module]

    def served(self, dtype: torch.dtype) -> bool:
        """Whether the kernels compute the model in this dtype here, so that nothing else needs its modules."""
        with suppress(BuildError):
            kernels = team_library()
            return not self.config["is_encoder_decoder"] or encoder_dtype(kernels, dtype) is not None
        return False

    def load_model(self, folder: Path, dtype: torch.dtype) -> BareModel | None:
        """The model in a dtype; None unless the folder has just the weights that were there before."""
        found, there = dict[str, Tensor](), set[str]()
        for path in folder.glob("model*.safetensors"):
            with suppress(OSError, SafetensorError), safe_open(path, "pt") as file:
                names = set(file.keys())
                there |= names
                for name in names & set(self.weights):
                    tensor = file.get_tensor(name)
                    if list(tensor.shape) == self.weights[name] and tensor.is_floating_point():
                        found[name] = tensor.to(dtype)
        whole = set(found) == set(self.weights) and there == {*self.weights, *self.unread}
        return BareModel(self, found) if whole else None


class BareModel(nn.Module):
    """Weights on the CPU in a tree of modules with transformers' names, and their config. It computes nothing."""

    device = torch.device("cpu")

    def __init__(self, prepared: Prepared, weights: Mapping[str, Tensor]) -> None:
        """Build the tree of tensors of one dtype, by name."""
        super().__init__()
        self.config = SimpleNamespace(**prepared.config)
        self.dtype = next(iter(weights.values())).dtype
        for name in prepared.modules:
            _module(self, name)
        parameters = {name: nn.Parameter(each, requires_grad=False) for name, each in weights.items()}
        for name in (*prepared.weights, *prepared.shared):
            owning, _, kind = name.rpartition(".")
            setattr(_module(self, owning), kind, parameters[prepared.shared.get(name, name)])
        for name, kept in prepared.modules.items():
            module = _module(self, name)
            for key, value in kept.attributes.items():
                setattr(module, key, value)
            for key, numbers in kept.buffers.items():
                module.register_buffer(key, torch.tensor(numbers))
        for part in self.children():
            vars(part)["config"] = self.config


def read_prepared(folder: Path) -> Prepared | None:
    """What the cache holds of a folder with these very files; None if there is nothing, or it is not what was written."""
    with suppress(OSError, RuntimeError, ValueError, msgspec.DecodeError):
        if is_safe(path := _path(folder)):
            checksum, _, content = path.read_bytes().partition(b"\n")
            if checksum == hashlib.sha256(content).hexdigest().encode():
                return msgspec.json.decode(content, type=Prepared)
    return None


def keep_prepared(folder: Path, model: Any, tokenizer: Any, settings: Any) -> None:
    """Keep a model of transformers and its tokenizer in the cache, if the kernels compute the model.

    Where nothing can be kept, nothing is: the next load takes as long as this one.
    """
    with suppress(OSError, RuntimeError, ValueError, BuildError):
        describe(model)
        names, tensors = set[str](), {name: list(each.shape) for name, each in model.state_dict().items()}
        for path in folder.glob("model*.safetensors"):
            with safe_open(path, "pt") as file:
                names |= set(file.keys())
        parts, shared = parts_of(tokenizer), _shared(model, names)
        if parts is None or not names or not set(tensors) <= {*names, *shared}:
            return
        path = _path(folder)
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        if is_safe(path.parent):
            sizes = {name: size for name, size in tensors.items() if name in names}
            modules = {name: module for name, each in model.named_modules() if (module := _kept(each))}
            unread = sorted(names - set(tensors))
            prepared = Prepared(model.config.to_dict(), settings, parts, sizes, unread, shared, modules)
            content = msgspec.json.encode(prepared)
            write_text(path, f"{hashlib.sha256(content).hexdigest()}\n{content.decode()}")
            by_age = sorted(path.parent.glob("prepared-*.json"), key=lambda each: each.stat().st_mtime)
            for older in by_age[:-MOST_KEPT]:
                older.unlink()


def _shared(model: Any, there: set[str]) -> dict[str, str]:
    """Weights that are not in the files because they are the same as one of these, with the name of the latter."""
    owners, shared = dict[int, str](), dict[str, str]()
    weights = dict(model.named_parameters(remove_duplicate=False))
    for name in filter(there.__contains__, weights):
        owners.setdefault(id(weights[name]), name)
    for name, weight in weights.items():
        if name not in there and (owner := owners.get(id(weight))):
            shared[name] = owner
    return shared


def _kept(module: Any) -> _Module | None:
    """What a module has beside weights and other modules: its plain attributes, and its buffers."""
    plain = (str, int, float, bool, dict, type(None))
    attributes = {
        key: value
        for key, value in vars(module).items()
        if not key.startswith("_") and key != "training" and isinstance(value, plain)
    }
    buffers = dict[str, Any]()
    for key, buffer in module.named_buffers(recurse=False):
        if buffer.numel() > _MOST_NUMBERS:
            raise ValueError(f"the buffer {key} is large")
        buffers[key] = buffer.float().tolist()
    for key, parameter in module._parameters.items():
        if parameter is None:  # a matrix without a bias
            attributes[key] = None
    return _Module(attributes, buffers) if attributes or buffers else None


def _module(root: nn.Module, name: str) -> nn.Module:
    """The module of a name; it is made if need be. Modules with numbered children are lists."""
    module, parts = root, [*filter(None, name.split("."))]
    for part, after in zip(parts, [*parts, ""][1:], strict=True):
        if part not in module._modules:
            module.add_module(part, nn.ModuleList() if after.isdigit() else nn.Module())
        module = module.get_submodule(part)
    return module


def _path(folder: Path) -> Path:
    """The cache's file for a folder, by the content of all files that a load depends on."""
    versions = map(str, map(package_version, ("pipedec", "transformers", "tokenizers")))
    digest = hashlib.sha256(" ".join(versions).encode())
    for path in sorted({path for pattern in _READ for path in folder.glob(pattern)}):
        if path.name not in _UNREAD:
            digest.update(f"\n{path.name}\n".encode() + path.read_bytes())
    return cache_folder() / f"prepared-{digest.hexdigest()[:32]}.json"
