"""The structures of ``model.h``, which Python hands to the compiled kernels."""

from __future__ import annotations

from ctypes import POINTER, Structure, c_double, c_int64, c_void_p
from typing import Any, Final

#: The numbers of `Activation` in C++, by the names of transformers.
ACTIVATIONS: Final = {"relu": 0, "gelu_new": 1, "gelu_pytorch_tanh": 1, "silu": 2}


def _fields(kind: Any, names: str) -> list[tuple[str, Any]]:
    return [(name, kind) for name in names.split()]


class LayerStruct(Structure):
    """``Layer``: addresses of a layer's norms, bias table and packed matrices, and its flags."""

    _fields_ = [
        *_fields(c_void_p, "self_norm cross_norm feed_norm bias"),
        *_fields(c_void_p, "qkv self_out cross_q cross_kv cross_out feed_in feed_out"),
        *_fields(c_void_p, "self_post feed_post query_norm key_norm qkv_bias"),
        *_fields(c_int64, "rotary windowed"),
    ]


class ModelStruct(Structure):
    """``Model``: sizes and flags of an encoder or a decoder, and addresses of its weights."""

    _fields_ = [
        *_fields(c_int64, "layers heads key_heads head_width width feed_width vocabulary reach"),
        *_fields(c_int64, "weights activation pairs tiles gated causal window rotaries"),
        *_fields(c_double, "epsilon scale embedding_scale query_scale cap"),
        *_fields(c_void_p, "embedding final_norm frequencies amplitudes head"),
        ("layer", POINTER(LayerStruct)),
    ]


class CacheStruct(Structure):
    """``Cache``: its sizes, and addresses of keys, values and places."""

    _fields_ = [
        *_fields(c_int64, "sequences room source_room"),
        *_fields(c_void_p, "keys values source_keys source_values subsequence time position source_length"),
    ]


class RowStruct(Structure):
    """``Row``: a token and its place. `choices` counts the tokens that may answer; 0: all may; −1: no answer is wanted.

    Only decoder-only models use the position.
    """

    _fields_ = _fields(c_int64, "token sequence column subsequence time choices position")
