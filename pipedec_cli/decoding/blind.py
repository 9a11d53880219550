"""An ordinary decoder-only model that answers a question in each row, without training."""

from dataclasses import replace

from pipedec_cli.data.errors import UserError
from pipedec_cli.decoding.decoder import Decoder
from pipedec_cli.objects.checking import checker
from pipedec_cli.objects.reader import ObjectReader
from pipedec_cli.objects.rows import BlindPlan, Rows


def blind_decoder(
    plain: Decoder,
    rows: Rows,
    *,
    template: str | None = None,
    chat: bool | None = None,
    grounded: bool = True,
    shares_engines: bool = False,
) -> Decoder:
    """A decoder of objects by blind rows: each row asks the model one thing and sees the prompt and itself alone.

    It has the weights of `plain`, an ordinary decoder-only model; a UserError for any
    other. `rows` are what is asked.

    `template` is the prompt, with {source} and, behind it, {question}. `chat` puts it
    into the model's chat template; by default it does so if there is a chat template
    and there are no examples. With `grounded` values that the schema leaves free are
    parts of the source. A decoder that shares the engines of `plain` takes over what
    these have read.
    """
    require_ordinary(plain)
    own = replace(plain.checkpoint)  # which ends its texts in another way
    plan = BlindPlan(own, plain.text, rows, template, chat, grounded=grounded)
    check = checker(rows.schema, rows.where, rows.warn, rows.of_class)
    return plain.sharing(
        engines=shares_engines,
        checkpoint=plan.checkpoint,
        settings=plan.checkpoint.settings,
        text=plan.text,
        fields=plan.fields,
        plan=plan,
        reader=ObjectReader(plan.fields, plan.answers, check=check),
        blind=plan,
    )


def plan_of(decoder: Decoder) -> BlindPlan:
    """The plan of a decoder that `blind_decoder` has made."""
    assert decoder.blind is not None, "it has no blind rows"
    return decoder.blind


def require_ordinary(plain: Decoder) -> None:
    """Raise a UserError unless `plain` is an ordinary decoder-only model: one that reads a prompt and writes one text."""
    name = plain.checkpoint.name
    backbone = plain.checkpoint.backbone
    is_ordinary = plain.settings.decoder == "sequential" and plain.drafter is None
    if backbone.prompted and is_ordinary:
        return
    kind = "pipelined decoder" if backbone.prompted else backbone.name
    if plain.drafter:
        kind = "decoder of exact mode"
    what = f"{name} is a {kind}: only an ordinary decoder-only model answers without training"
    raise UserError(
        what, todo="leave --schema, --shots and --ask out, or take another --model"
    )
