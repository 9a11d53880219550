"""A model as the compiled kernels see it, and its weights packed for them: matrices in panels, in the order of reading."""

from collections.abc import Callable, Sequence
from ctypes import Structure
from dataclasses import dataclass
from functools import partial
from itertools import chain
from typing import Any, Final

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from pipedec_cli.model.arguments import INT4
from pipedec_cli.model.engine.native.kinds import INTEGERS, encoder_dtype, kind_of
from pipedec_cli.model.engine.native.library import (
    ACTIVATIONS,
    BuildError,
    LayerStruct,
    Library,
    ModelStruct,
    library,
)
from pipedec_cli.model.engine.torch.parts import (
    distance_buckets,
    layers,
    offset_buckets,
    output_scale,
)
from pipedec_cli.model.families import T5

#: A weight, and those of its outputs that are a part of a matrix.
Part = tuple[nn.Parameter, slice]
#: Rotary embeddings whose frequencies do not depend on the length of a text.
STATIC_ROPES: Final = ("default", "linear", "llama3", "yarn")


@dataclass(frozen=True, slots=True)
class LayerSpec:
    """One layer. Matrices and norms are modules under the names of `LayerStruct`."""

    #: The modules that make a matrix together, in the order in which a step reads them.
    matrices: dict[str, Sequence[Any]]
    norms: dict[str, Any]
    bias: Tensor | None = (
        None  # T5's position bias, float32 [heads, distances]; layers may share it
    )
    rotary: int = -1  # which of the model's frequencies turn the heads; −1: none
    window: int = 0  # how many positions the layer sees; 0: all


@dataclass(frozen=True, slots=True)
class ModelSpec:
    """An encoder or a decoder."""

    stack: Any  # the module with all layers and the embedding `embed_tokens`
    head: Any  # the output matrix; None for an encoder
    final_norm: Any
    layers: list[LayerSpec]
    sizes: dict[str, Any]  # fields of `ModelStruct`
    norm_offset: float = 0.0  # what the family adds to the weights of its norms
    frequencies: Tensor | None = (
        None  # radians for each position, float32 [rotaries, head_width / 2]
    )
    amplitudes: Tensor | None = None  # factors of cosine and sine, float32 [rotaries]


def describe(model: Any) -> ModelSpec:
    """Describe the decoder of a model; a BuildError if the kernels cannot compute it."""
    kind = model.config.model_type
    if kind not in FAMILIES:
        raise BuildError(f"there are no kernels for {kind}")
    return FAMILIES[kind](model)


def floats(module: Any) -> Tensor:
    """A copy of a module's weight in float32, contiguous and apart from the file that it was loaded from."""
    values: Tensor = module.weight.detach().to(torch.float32, copy=True).contiguous()
    return values


def _t5_decoder(model: Any) -> ModelSpec:
    config = model.config
    if config.dense_act_fn not in ("relu", "gelu_new"):
        raise BuildError(f"the activation is {config.dense_act_fn}")
    if config.d_kv % 2:
        raise BuildError("the heads' width is odd")
    return describe_t5(model.decoder, head=model.lm_head, scale=output_scale(config))


def describe_t5(stack: Any, *, head: Any = None, scale: float = 1.0) -> ModelSpec:
    """Describe an encoder; or a decoder with its `head`, which multiplies the last states times `scale`."""
    config, found = stack.config, layers(stack)
    named = (
        config.relative_attention_num_buckets,
        config.relative_attention_max_distance,
    )
    buckets = (offset_buckets if head is None else distance_buckets)(*named)
    biases, specs = dict[Any, Tensor](), list[LayerSpec]()  # biases by the embedding
    for layer in found:
        if len(layer.bias.weight) != config.relative_attention_num_buckets:
            raise BuildError(
                "the position biases are not of the size that the config says"
            )
        if layer.bias not in biases:
            table = floats(layer.bias)[buckets].T
            hidden = (
                [] if head is None else [table.new_full((len(table), 1), -torch.inf)]
            )
            biases[layer.bias] = torch.cat([table, *hidden], dim=1).contiguous()
        own, dense = layer.own.SelfAttention, layer.feed.DenseReluDense
        inward = (dense.wi_0, dense.wi_1) if hasattr(dense, "wi_0") else (dense.wi,)
        matrices: dict[str, Sequence[Any]] = {
            "qkv": (own.q, own.k, own.v),
            "self_out": (own.o,),
        }
        norms = {"self_norm": layer.own.layer_norm, "feed_norm": layer.feed.layer_norm}
        if layer.cross is not None:
            cross, norms["cross_norm"] = (
                layer.cross.EncDecAttention,
                layer.cross.layer_norm,
            )
            matrices |= {
                "cross_q": (cross.q,),
                "cross_out": (cross.o,),
                "cross_kv": (cross.k, cross.v),
            }
        matrices |= {"feed_in": inward, "feed_out": (dense.wo,)}
        specs.append(LayerSpec(matrices, norms, biases[layer.bias]))
    sizes = {
        "heads": config.num_heads,
        "key_heads": config.num_heads,
        "head_width": config.d_kv,
        "width": config.d_model,
        "feed_width": config.d_ff,
        "reach": config.relative_attention_max_distance
        if head is None
        else len(buckets),
        "gated": hasattr(found[0].feed.DenseReluDense, "wi_0"),
        "activation": ACTIVATIONS[config.dense_act_fn],
        "epsilon": config.layer_norm_epsilon,
        "scale": scale,
        "embedding_scale": 1.0,
    }
    return ModelSpec(stack, head, stack.final_layer_norm, specs, sizes)


def _decoder_spec(model: Any) -> ModelSpec:
    """Describe a decoder-only model of one of the `DECODERS`."""
    config, stack, layout, specs = (
        model.config,
        model.model,
        DECODERS[model.config.model_type],
        list[LayerSpec](),
    )
    if getattr(config, "use_bidirectional_attention", None):
        raise BuildError("attention is not causal")
    turned = getattr(config, "no_rope_layers", None) or [1] * config.num_hidden_layers
    ropes = {"": config.rope_parameters}
    if any(
        isinstance(value, dict) for value in ropes[""].values()
    ):  # layers with a window have their own
        ropes = {f"{kind}_": ropes[""][kind] for kind in sorted({*config.layer_types})}
    places = (
        [[*ropes].index(f"{kind}_") for kind in config.layer_types]
        if len(ropes) > 1
        else [0] * len(turned)
    )
    rows = zip(stack.layers, _windows(config), turned, places, strict=True)
    for layer, window, is_turned, place in rows:
        found = {
            name: tuple(map(layer.get_submodule, paths))
            for name, paths in layout.matrices.items()
        }
        norms = {name: layer.get_submodule(path) for name, path in layout.norms.items()}
        specs.append(
            LayerSpec(
                {**found}, norms, rotary=place if is_turned else -1, window=window
            )
        )
    sizes = _causal_sizes(model, specs) | {"rotaries": len(ropes)}
    frequencies = _ropes(stack, ropes, sizes["head_width"])
    return ModelSpec(
        stack, model.lm_head, stack.norm, specs, sizes, layout.offset, *frequencies
    )


def _causal_sizes(model: Any, specs: list[LayerSpec]) -> dict[str, Any]:
    """The sizes and factors of a decoder-only model; a BuildError if the kernels cannot compute it."""
    config, windows = model.config, {spec.window for spec in specs} - {0}
    named = partial(getattr, config)
    if (
        named("attention_bias", False)
        or named("mlp_bias", False)
        or getattr(model.lm_head, "bias", None) is not None
    ):
        raise BuildError("its matrices have biases")
    activation = named("hidden_activation", None) or config.hidden_act
    if activation not in ACTIVATIONS:
        raise BuildError(f"the activation is {activation}")
    if len(windows) > 1:
        raise BuildError("layers have windows of several sizes")
    head_width = (
        named("head_dim", None) or config.hidden_size // config.num_attention_heads
    )
    embedding_scale = named("embedding_multiplier", 1.0)
    if config.model_type.startswith("gemma"):
        embedding_scale = float(
            torch.tensor(config.hidden_size**0.5).to(
                model.model.embed_tokens.weight.dtype
            )
        )
    query_norm = specs[0].norms.get("query_norm")
    return {
        "heads": config.num_attention_heads,
        "key_heads": config.num_key_value_heads,
        "head_width": head_width,
        "width": config.hidden_size,
        "feed_width": config.intermediate_size,
        "activation": ACTIVATIONS[activation],
        "gated": 1,
        "causal": 1,
        "window": max(windows, default=0),
        "wide_norms": query_norm is not None and len(query_norm.weight) != head_width,
        "epsilon": config.rms_norm_eps,
        "scale": 1.0 / named("logits_scaling", 1.0),
        "embedding_scale": embedding_scale,
        "query_scale": named(
            "attention_multiplier", named("query_pre_attn_scalar", head_width) ** -0.5
        ),
        "residual": named("residual_multiplier", 1.0),
        "cap": named("final_logit_softcapping", None) or 0.0,
        "score_cap": named("attn_logit_softcapping", None) or 0.0,
    }


def _windows(config: Any) -> list[int]:
    """How many positions each layer sees; 0: all."""
    kinds, window = (
        getattr(config, "layer_types", None),
        getattr(config, "sliding_window", None),
    )
    if not kinds or not getattr(
        config, "use_sliding_window", True
    ):  # only some families have the latter
        return [0 if kinds else window or 0] * config.num_hidden_layers
    return [
        config.sliding_window if kind == "sliding_attention" else 0 for kind in kinds
    ]


def _ropes(
    stack: Any, parameters: dict[str, Any], head_width: int
) -> tuple[Tensor, Tensor]:
    """The frequencies and amplitudes of rotary embeddings, whose parameters have the prefix of their names as a key.

    A stack without transformers' embedding has only such as its parameters alone
    determine: those of the kind "default".
    """
    module, frequencies, amplitudes = (
        getattr(stack, "rotary_emb", None),
        list[Tensor](),
        list[float](),
    )
    for prefix, rope in parameters.items():
        kind = rope.get("rope_type", "default")
        is_plain = kind == "default" and rope.get("partial_rotary_factor", 1.0) == 1.0
        if kind not in STATIC_ROPES or (module is None and not is_plain):
            raise BuildError(f"the rotary embedding is {kind}")
        if module is None:
            places = torch.arange(0, head_width, 2, dtype=torch.int64).float()
            frequencies.append(1.0 / (rope["rope_theta"] ** (places / head_width)))
            amplitudes.append(1.0)
        else:
            frequencies.append(getattr(module, f"{prefix}inv_freq").detach().float())
            amplitudes.append(float(getattr(module, f"{prefix}attention_scaling")))
        if len(frequencies[-1]) * 2 != head_width:
            raise BuildError("a part of each head alone is turned")
        if not frequencies[-1].isfinite().all():
            raise BuildError("a frequency of the rotary embedding is no number")
    return torch.stack(frequencies), torch.tensor(amplitudes, dtype=torch.float32)


@dataclass(frozen=True, slots=True)
class Layout:
    """What a layer of a decoder-only family has: its modules by their names in `LayerStruct`."""

    matrices: dict[
        str, tuple[str, ...]
    ]  # modules that make a matrix together, in the order of `LayerSpec`
    norms: dict[str, str]
    biased: bool = False  # whether queries, keys and values have biases
    offset: float = 0.0  # see `ModelSpec.norm_offset`

    @property
    def weights(self) -> set[str]:
        """The names of all weights of a layer."""
        paths = [path for several in self.matrices.values() for path in several]
        biases = {f"{path}.bias" for path in self.matrices["qkv"] if self.biased}
        return {f"{path}.weight" for path in (*paths, *self.norms.values())} | biases


_OWN, _FEED = "self_attn.", "mlp."
_BESIDE: Final = {
    "qkv": (_OWN + "q_proj", _OWN + "k_proj", _OWN + "v_proj"),
    "self_out": (_OWN + "o_proj",),
    "feed_in": (_FEED + "gate_proj", _FEED + "up_proj"),
    "feed_out": (_FEED + "down_proj",),
}
_FUSED: Final = _BESIDE | {
    "qkv": (_OWN + "qkv_proj",),
    "feed_in": (_FEED + "gate_up_proj",),
}
_BEFORE: Final = {
    "self_norm": "input_layernorm",
    "feed_norm": "post_attention_layernorm",
}
_BEHIND: Final = {
    "self_post": "post_attention_layernorm",
    "feed_post": "post_feedforward_layernorm",
}
_AROUND: Final = _BEHIND | {
    "self_norm": "input_layernorm",
    "feed_norm": "pre_feedforward_layernorm",
}
_HEADS: Final = {"query_norm": _OWN + "q_norm", "key_norm": _OWN + "k_norm"}
#: The decoder-only families that are compiled.
DECODERS: Final = {
    **dict.fromkeys(
        ("llama", "smollm3", "mistral", "granite"), Layout(_BESIDE, _BEFORE)
    ),
    "qwen2": Layout(_BESIDE, _BEFORE, biased=True),
    "qwen3": Layout(_BESIDE, _BEFORE | _HEADS),
    "phi3": Layout(_FUSED, _BEFORE),
    "olmo2": Layout(_BESIDE, _BEHIND | _HEADS),
    "gemma2": Layout(_BESIDE, _AROUND, offset=1.0),
    "gemma3_text": Layout(_BESIDE, _AROUND | _HEADS, offset=1.0),
}
#: What describes a model, by its type.
FAMILIES: Final[dict[str, Callable[[Any], ModelSpec]]] = {
    **dict.fromkeys(T5.model_types, _t5_decoder),
    **dict.fromkeys(DECODERS, _decoder_spec),
}


#: Bytes of a large page, to which packed weights are aligned, and of a word.
LARGE_PAGE: Final = 1 << 21
WORD: Final = 4
#: Outputs of a matrix that are converted to another dtype at once, a multiple of every
#: panel.
TOGETHER: Final = 8192


@dataclass(frozen=True, slots=True)
class NativeWeights:
    """A packed encoder or decoder: `struct` points into the tensors that are `kept`.

    The cache has the dtype of the weights. Beside int8 and int4 weights it is in
    bfloat16.
    """

    library: Library
    struct: ModelStruct
    dtype: torch.dtype
    kept: list[object]


def pack_native(
    model: Any, dtype: torch.dtype | None = None, *, consume: bool = False
) -> NativeWeights:
    """Pack the decoder of a model on the CPU, in float32 or bfloat16; a BuildError if the kernels cannot compute it.

    Args:
        model: of transformers, or a `BareModel`.
        dtype: the model's, or int8 or int4: then matrices are rounded, with a scale for
            each output and 64 or 32 inputs.
        consume: empty the matrices that are copied, so that they are not in memory
            twice. The model is then unusable.
    """
    spec = describe(model)
    head, embedding = spec.head.weight, spec.stack.embed_tokens.weight
    if head.device.type != "cpu":
        raise BuildError(f"the device is {head.device.type}")
    dtypes = {
        head.dtype,
        *(weight.dtype for weight in spec.stack.parameters() if weight.dim() > 1),
    }
    if dtypes not in ({torch.float32}, {torch.bfloat16}):
        raise BuildError("the weights are neither all float32 nor all bfloat16")
    kernels, dtype = library(), dtype or embedding.dtype
    tied = head.data_ptr() == embedding.data_ptr()
    if (consume or dtype == INT4) and "causal" not in spec.sizes:
        # An encoder in another dtype reads the embedding itself, which must not be
        # emptied then.
        tied = tied and encoder_dtype(kernels, dtype) == dtype
    return pack(spec, kernels, dtype, consume=consume, tied=tied)


def pack(
    spec: ModelSpec,
    kernels: Library,
    dtype: torch.dtype,
    *,
    consume: bool = False,
    tied: bool = False,
    beside: NativeWeights | None = None,
) -> NativeWeights:
    """Pack an encoder or a decoder for a library; see `pack_native`.

    Embeddings that are `tied` are read from the packed output matrix, which is the same
    matrix. `beside` is the decoder of the encoder `spec`, in the same dtype: if its
    embeddings are tied, the encoder reads them.
    """
    packing, looked_up = _Packing(spec, kernels, dtype), spec.stack.embed_tokens.weight
    packing.kept.append(beside)
    if beside is not None:
        packing.model.head, packing.model.vocabulary = (
            beside.struct.head,
            beside.struct.vocabulary,
        )
        tied = not beside.struct.embedding
    embedding = None
    if not tied:
        narrow = torch.bfloat16 if dtype in INTEGERS else dtype
        embedding = (
            looked_up.detach()
            .to(narrow, copy=consume and spec.head is not None)
            .contiguous()
        )
        packing.point(packing.model, "embedding", embedding)
    packing.add_layers()
    packing.fill(consume=consume, keep=None if tied else looked_up)
    if (
        consume
    ):  # nothing that is left of the model is part of the file that it was loaded from
        modules = [spec.stack] if spec.head is None else [spec.stack, spec.head]
        for parameter in {
            weight for module in modules for weight in module.parameters()
        } - {looked_up}:
            parameter.data = parameter.data.clone()
        if embedding is not None:
            looked_up.data = embedding
    return NativeWeights(kernels, packing.model, dtype, packing.kept)


def check_spec(spec: ModelSpec, kernels: Library, dtype: torch.dtype) -> None:
    """Raise a BuildError if matrices, norms or biases are not of the sizes that the config says."""
    packing, shape = (
        _Packing(spec, kernels, dtype),
        spec.stack.embed_tokens.weight.shape,
    )
    _require(
        shape == (packing.model.vocabulary, packing.model.width), "the embedding is"
    )
    packing.add_layers()


class _Packing:
    """A model in the making: its structure, the tensors that it points to, and the matrices that are to be packed."""

    def __init__(self, spec: ModelSpec, kernels: Library, dtype: torch.dtype) -> None:
        self.spec, self.kernels, self.kind = spec, kernels, kind_of(kernels, dtype)
        self.head_kind = kind_of(kernels, torch.int8 if dtype == INT4 else dtype)
        self.given = (
            torch.float32 if dtype in INTEGERS else dtype
        )  # the dtype that the library packs
        self.layers = (LayerStruct * len(spec.layers))()
        ways = {
            name: getattr(self.kind, name) for name in ("weights", "pairs", "tiles")
        }
        counts = {
            "layers": len(self.layers),
            "vocabulary": len(spec.stack.embed_tokens.weight),
        }
        self.model = ModelStruct(
            layer=self.layers, **{"residual": 1.0, **counts, **ways, **spec.sizes}
        )
        self.kept: list[object] = [self.layers]
        self._added: list[
            tuple[Structure, str, int, list[list[Part]]]
        ] = []  # with their offsets
        self._size = 0

    def point(self, struct: Structure, name: str, tensor: Tensor) -> None:
        """Have a field point to a tensor."""
        self.kept.append(tensor)
        setattr(struct, name, tensor.data_ptr())

    def add_layers(self) -> None:
        """Add all norms and matrices; a BuildError if they are not of the size that the config says."""
        spec, model = self.spec, self.model
        for struct, layer in zip(self.layers, spec.layers, strict=True):
            struct.rotary, struct.windowed = layer.rotary, layer.window > 0
            for name, modules in layer.matrices.items():
                if name != "cross_kv":
                    self._add(struct, name, modules)
            biases = [getattr(module, "bias", None) for module in layer.matrices["qkv"]]
            if found := [bias.detach().float() for bias in biases if bias is not None]:
                bias = torch.cat(found)
                fits = bias.shape == (
                    (model.heads + 2 * model.key_heads) * model.head_width,
                )
                _require(fits, "the biases of the queries, keys and values are")
                self.point(
                    struct,
                    "qkv_bias",
                    F.pad(bias, (0, -len(bias) % self.kernels.panel)),
                )
            for name, module in layer.norms.items():
                heads = {"query_norm": model.heads, "key_norm": model.key_heads}
                width = (
                    model.head_width * (heads[name] if model.wide_norms else 1)
                    if name in heads
                    else model.width
                )
                self._point_to_norm(struct, name, module, width)
            if layer.bias is not None:
                _require(len(layer.bias) == model.heads, "the position biases are")
                self.point(struct, "bias", layer.bias)
        self._point_to_norm(model, "final_norm", spec.final_norm, model.width)
        if spec.frequencies is not None and spec.amplitudes is not None:
            self.point(model, "frequencies", spec.frequencies)
            self.point(model, "amplitudes", spec.amplitudes)
        if spec.head is not None:
            self._add(model, "head", [spec.head])
        for struct, layer in zip(self.layers, spec.layers, strict=True):
            if "cross_kv" in layer.matrices:  # behind all that a step reads
                self._add(struct, "cross_kv", layer.matrices["cross_kv"])

    def _point_to_norm(
        self, struct: Structure, name: str, module: Any, width: int
    ) -> None:
        norm = floats(module) + self.spec.norm_offset
        _require(norm.shape == (width,), f"{name} is")
        self.point(struct, name, norm)

    def _add(self, struct: Structure, name: str, modules: Sequence[Any]) -> None:
        """Add a matrix: its modules follow each other. Panels of the two of a gated `feed_in` take turns instead."""
        m, weights = self.model, [module.weight for module in modules]
        inner, inner_kv = m.heads * m.head_width, m.key_heads * m.head_width
        outputs, inputs = {
            "qkv": (inner + 2 * inner_kv, m.width),
            "self_out": (m.width, inner),
            "cross_q": (inner, m.width),
            "cross_kv": (2 * inner, m.width),
            "cross_out": (m.width, inner),
            "feed_in": (m.feed_width, m.width),
            "feed_out": (m.width, m.feed_width),
            "head": (m.vocabulary, m.width),
        }[name]
        matrices = [[(weight, slice(None)) for weight in weights]]
        if name == "feed_in" and m.gated and len(weights) == 1:  # both in one
            matrices = [
                [(weights[0], slice(outputs))],
                [(weights[0], slice(outputs, None))],
            ]
        elif name == "feed_in":
            matrices = [[part] for part in matrices[0]]
        for parts in matrices:
            shapes = [part[rows].shape for part, rows in parts]
            fits = sum(shape[0] for shape in shapes) == outputs and {
                shape[1] for shape in shapes
            } == {inputs}
            _require(fits, f"{name} is")
        self._added.append((struct, name, self._size, matrices))
        self._size += (
            len(matrices)
            * self.kernels.words(self._kind_of(name), outputs, inputs)
            * WORD
        )

    def fill(self, *, consume: bool, keep: Tensor | None) -> None:
        """Pack all matrices into one piece of memory. `consume` empties each one that is packed, except `keep`."""
        size = -(-self._size // LARGE_PAGE) * LARGE_PAGE
        arena = torch.empty(size + LARGE_PAGE, dtype=torch.uint8)
        self.kept.append(arena)
        start = -(-arena.data_ptr() // LARGE_PAGE) * LARGE_PAGE
        self.kernels.use_large_pages(start, size)
        for struct, name, offset, matrices in self._added:
            setattr(struct, name, start + offset)
            for number, parts in enumerate(matrices):
                self._pack(name, parts, start + offset, number, len(matrices))
            for part, _ in chain.from_iterable(matrices):
                if consume and (keep is None or part.data_ptr() != keep.data_ptr()):
                    part.data = part.data.new_empty(0)

    def _kind_of(self, name: str) -> ModelStruct:
        # Of all matrices the output matrix suffers most in 4 bits: `HeadOf` in C++.
        return self.head_kind if name == "head" else self.kind

    def _pack(
        self, name: str, parts: list[Part], panels: int, number: int, every: int
    ) -> None:
        """Pack a matrix, some of its outputs at a time. Its first panel becomes panel `number`, the next `every` later."""
        taken = [part.detach()[rows] for part, rows in parts]
        matrix = torch.cat(taken) if len(taken) > 1 else taken[0]
        for first in range(0, len(matrix), TOGETHER):
            portion = matrix[first : first + TOGETHER].to(self.given).contiguous()
            place = number + first // self.kernels.panel * every
            self.kernels.pack(self._kind_of(name), portion, panels, place, every)


def _require(fits: bool, what: str) -> None:
    if not fits:
        raise BuildError(f"{what} not of the size that the config says")
