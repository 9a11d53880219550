"""A decoder's weights laid out for stepping, plain and packed: they compute what the modules compute."""

from __future__ import annotations

import copy

import pytest
import torch
import torch.nn.functional as F

from pipedec_cli.model import linear as linear_module
from pipedec_cli.model import weights as weights_module
from pipedec_cli.model.layers import decoder_layers, distance_buckets
from pipedec_cli.model.linear import can_prepack, make_linear
from pipedec_cli.model.weights import lay_out
from tests.model.families import KINDS, VOCABULARY, Kind, small_model

packed_float32 = pytest.mark.skipif(not can_prepack(torch.float32), reason="no oneDNN kernels here")
packed_bfloat16 = pytest.mark.skipif(not can_prepack(torch.bfloat16), reason="no bfloat16 kernels here")
PACKED = [False, pytest.param(True, marks=packed_float32)]


@pytest.mark.parametrize(
    ("dtype", "tolerance"),
    [
        pytest.param(torch.float32, 1e-5, marks=packed_float32),
        pytest.param(torch.bfloat16, 2e-2, marks=packed_bfloat16),
    ],
)
@pytest.mark.parametrize("rows", [1, 2, 8, 9, 33])
def test_a_packed_matrix_gives_the_plain_product_for_any_number_of_rows(
    dtype: torch.dtype, tolerance: float, rows: int
) -> None:
    generator = torch.Generator().manual_seed(rows)
    weight = torch.randn(48, 32, generator=generator).to(dtype)
    x = torch.randn(rows, 32, generator=generator).to(dtype)

    product = make_linear(weight, prepack=True)(x)

    assert product.dtype == dtype
    torch.testing.assert_close(product, F.linear(x, weight), rtol=tolerance, atol=10 * tolerance)


@packed_float32
def test_a_slice_of_a_matrix_can_be_packed() -> None:
    weight = torch.randn(48, 64)[:, ::2]
    x = torch.randn(3, 32)

    torch.testing.assert_close(make_linear(weight, prepack=True)(x), x @ weight.T, rtol=1e-5, atol=1e-5)


def test_only_kinds_that_have_kernels_are_packed() -> None:
    assert not can_prepack(torch.float16)
    assert not can_prepack(torch.int8)


def test_a_machine_without_the_kernels_falls_back_to_plain_operators(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch._C, "_has_mkldnn", False)

    assert not linear_module.can_prepack(torch.float32)
    assert lay_out(small_model("t5"), native=False).kernels == "plain operators"


@pytest.mark.parametrize("packed", PACKED)
@pytest.mark.parametrize("kind", KINDS)
def test_every_matrix_is_the_modules(kind: Kind, packed: bool) -> None:
    model = small_model(kind)
    weights = lay_out(model, prepack=packed)
    x = torch.randn(5, 32, generator=torch.Generator().manual_seed(1))
    close = {"rtol": 1e-4, "atol": 1e-5}

    for ours, theirs in zip(weights.layers, decoder_layers(model), strict=True):
        own, cross = theirs.self_attention, theirs.cross_attention
        with torch.no_grad():
            torch.testing.assert_close(ours.self_norm(x), theirs.self_norm(x), **close)
            torch.testing.assert_close(ours.cross_norm(x), theirs.cross_norm(x), **close)
            torch.testing.assert_close(ours.qkv(x), torch.cat([own.q(x), own.k(x), own.v(x)], dim=1), **close)
            torch.testing.assert_close(ours.self_out(x), own.o(x), **close)
            torch.testing.assert_close(ours.cross_q(x), cross.q(x), **close)
            torch.testing.assert_close(ours.cross_kv(x), torch.cat([cross.k(x), cross.v(x)], dim=1), **close)
            torch.testing.assert_close(ours.cross_out(x), cross.o(x), **close)
            torch.testing.assert_close(x + ours.feed(ours.feed_norm(x)), theirs.feed_forward(x), **close)
    with torch.no_grad():
        torch.testing.assert_close(weights.head(x), model.lm_head(x), **close)
    assert weights.embedding.shape == (VOCABULARY, 32)
    assert (weights.heads, weights.dtype) == (4, torch.float32)
    assert weights.kernels == ("oneDNN prepacked" if packed else "plain operators")


@pytest.mark.parametrize("kind", KINDS)
def test_the_bias_table_holds_each_distance_and_hides_the_invisible(kind: Kind) -> None:
    model = small_model(kind)
    weights = lay_out(model, prepack=False)

    for ours, theirs in zip(weights.layers, decoder_layers(model), strict=True):
        first = decoder_layers(model)[0].self_attention
        embedding = getattr(theirs.self_attention, "relative_attention_bias", first.relative_attention_bias)
        assert ours.bias.shape == (4, 12 + 2)
        assert weights.invisible == 13
        for distance, bucket in enumerate(distance_buckets(model.config).tolist()):
            assert ours.bias[:, distance].equal(embedding.weight[bucket])
        assert (ours.bias[:, weights.invisible] == torch.finfo(torch.float32).min).all()


def test_layers_that_share_a_bias_share_the_table() -> None:
    shared, apart = (lay_out(small_model(kind), prepack=False).layers for kind in ("t5", "umt5"))

    assert shared[0].bias is shared[1].bias
    assert apart[0].bias is not apart[1].bias


def test_wo_in_a_wider_dtype_is_computed_there(monkeypatch: pytest.MonkeyPatch) -> None:
    """As transformers loads float16: the sum inside the feed-forward part is not rounded to the narrow dtype."""
    model = copy.deepcopy(small_model("t5")).to(torch.bfloat16)
    dense = decoder_layers(model)[0].feed_forward.DenseReluDense
    dense.wo.float()
    inputs: list[tuple[torch.dtype, bool]] = []

    def watched(weight: torch.Tensor, *, prepack: bool) -> linear_module.Linear:
        inputs.append((weight.dtype, prepack))
        return make_linear(weight, prepack=False)

    monkeypatch.setattr(weights_module, "make_linear", watched)
    feed = lay_out(model, prepack=True).layers[0].feed

    assert feed(torch.randn(2, 32, dtype=torch.bfloat16)).dtype == torch.float32
    assert inputs.count((torch.float32, False)) == 1  # and it is not packed as if it were narrow
