"""Names of the parts, buckets of distances and output scales: each family as transformers has it."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch

from pipedec_cli.model.t5 import distance_buckets, layers, output_scale
from tests.model.families import Kind, small_model


def bucket_config(buckets: int, max_distance: int, **more: Any) -> Any:
    return SimpleNamespace(
        relative_attention_num_buckets=buckets, relative_attention_max_distance=max_distance, **more
    )


def transformers_buckets(family: str, buckets: int, max_distance: int, distances: torch.Tensor) -> list[int]:
    from transformers.models.t5.modeling_t5 import T5Attention
    from transformers.models.umt5.modeling_umt5 import UMT5Attention

    if family == "t5":
        found = T5Attention._relative_position_bucket(
            -distances, bidirectional=False, num_buckets=buckets, max_distance=max_distance
        )
    else:
        decoder: Any = bucket_config(buckets, max_distance, is_decoder=True)
        found = UMT5Attention._relative_position_bucket(decoder, -distances)
    return list(map(int, found))


@pytest.mark.parametrize("family", ["t5", "umt5"])
@pytest.mark.parametrize(("buckets", "max_distance"), [(32, 128), (8, 12), (16, 20), (32, 1000), (7, 40)])
def test_buckets_are_those_of_transformers_at_every_distance(
    family: str, buckets: int, max_distance: int
) -> None:
    table = distance_buckets(bucket_config(buckets, max_distance))
    distances = torch.arange(2 * max_distance)

    ours = table[distances.clamp(max=len(table) - 1)].tolist()

    assert ours == transformers_buckets(family, buckets, max_distance, distances)


@pytest.mark.parametrize(
    ("kind", "scale"), [("t5", 32**-0.5), ("gated", 1.0), ("mt5", 1.0), ("umt5", 32**-0.5)]
)
def test_the_output_scale_is_the_familys_and_only_umt5_has_a_bias_in_every_layer(
    kind: Kind, scale: float
) -> None:
    model = small_model(kind)
    assert output_scale(model.config) == pytest.approx(scale)
    for stack in (model.encoder, model.decoder):
        first, second = layers(stack)
        assert (first.bias is not second.bias) == (kind == "umt5")
