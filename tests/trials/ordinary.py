"""The ordinary way to an object without training: it is written as JSON in one go, under a grammar, by llama.cpp.

    python -m tests.trials.ordinary MODEL.gguf dev.jsonl predictions.jsonl --fields
    "name, area" --shots train.jsonl:4

It is greedy and takes one text at a time. The keys and the examples are those of
`pipedec generate` with the same options, and `pipedec score` scores the predictions.
Each key stands in the object, null without a value. Without examples the model's own
chat template is taken, if `--no-chat` does not forbid it.

It takes llama-cpp-python, and no torch.
"""

import argparse
import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path
from time import perf_counter
from typing import Any, NamedTuple

from pipedec_cli.data.errors import UserError
from pipedec_cli.data.fields import Field
from pipedec_cli.data.inputs import read_records
from pipedec_cli.data.records import Record
from pipedec_cli.jobs.loading import choose_shots
from pipedec_cli.objects.json_schema import load_schema, tree_in
from pipedec_cli.objects.schema import read_short, settled

Schema = dict[str, Any]
#: Examples are chosen from so many records, as in `pipedec generate`.
CHOSEN_FROM = 2_000
TYPES = {
    "string": "string",
    "number": "number",
    "integer": "integer",
    "boolean": "boolean",
}
CHAT_PROMPT = (
    "Text: {source}\n\nAnswer with a JSON object with these keys: {keys}. Take the values from the text. A key that the text "
    "says nothing of is null."
)


class Keys(NamedTuple):
    """What is asked for: the keys as the project reads them, and as a JSON Schema in which each may be null."""

    fields: list[Field]
    schema: Schema


def keys_of(schema: str | None, fields: str | None) -> Keys:
    """The keys of the options --schema or --fields."""
    if schema is not None:
        given = load_schema(schema)
        return Keys(
            [*tree_in(given.schema, given.where).values()], with_nulls(given.schema)
        )
    if fields is None:
        raise UserError("no keys are given", todo="give --fields or --schema")
    read = [settled(field) for field in read_short(fields).values()]
    return Keys(read, with_nulls(schema_of(read)))


def schema_of(fields: Sequence[Field]) -> Schema:
    """The JSON Schema of the keys of --fields."""
    schema: Schema = {"type": "object"}
    for field in fields:
        part = schema
        for key in field.keys:
            if key == 0:
                part["type"] = "array"
                part = part.setdefault("items", {"type": "object"})
            else:
                part["type"] = "object"
                part = part.setdefault("properties", {}).setdefault(key, {})
        part |= values_of(field)
    return schema


def values_of(field: Field) -> Schema:
    """The JSON Schema of a key's values."""
    scalar: Schema = (
        {"enum": [*field.enum]}
        if field.enum
        else {"type": TYPES.get(field.kind, "string")}
    )
    if field.kind == "list":
        return {"type": "array", "items": scalar}
    return scalar


def with_nulls(schema: Schema) -> Schema:
    """The same schema, but each key of an object must be there, and may be null."""
    changed = dict(schema)
    if "items" in schema:
        changed["items"] = with_nulls(schema["items"])
    if "properties" in schema:
        nullable = {}
        for key, part in schema["properties"].items():
            nullable[key] = {"anyOf": [with_nulls(part), {"type": "null"}]}
        changed |= {
            "properties": nullable,
            "required": [*nullable],
            "additionalProperties": False,
        }
    return changed


def with_all_keys(schema: Schema, value: Any) -> Any:
    """A value of a schema of `with_nulls`, in which each key stands, in the schema's order."""
    if "anyOf" in schema:
        return with_all_keys(schema["anyOf"][0], value)
    if isinstance(value, Mapping) and "properties" in schema:
        return {
            key: with_all_keys(part, value.get(key))
            for key, part in schema["properties"].items()
        }
    if isinstance(value, list) and "items" in schema:
        return [with_all_keys(schema["items"], item) for item in value]
    return value


def shots_of(option: str | None, fields: Sequence[Field]) -> list[Record]:
    """The examples that `pipedec generate` shows."""
    if option is None:
        return []
    location, _, number = option.rpartition(":")
    count = int(number)
    records = (
        record for record in read_records(location) if record.target_fields is not None
    )
    return choose_shots([*islice(records, CHOSEN_FROM)], fields, count)


def prompt_of(source: str, shots: Sequence[Record], schema: Schema) -> str:
    """The examples and a text; what follows is its object."""
    lines = []
    for shot in shots:
        target = with_all_keys(schema, shot.target_fields)
        lines.append(
            f"Text: {shot.source}\nJSON: {json.dumps(target, ensure_ascii=False)}\n\n"
        )
    return f"{''.join(lines)}Text: {source}\nJSON: "


class Writer:
    """llama.cpp with a model, a schema and examples."""

    def __init__(
        self, model: str, keys: Keys, shots: Sequence[Record], asked: argparse.Namespace
    ) -> None:
        from llama_cpp import Llama
        from llama_cpp.llama_grammar import LlamaGrammar

        threads = asked.threads
        self.model = Llama(
            model,
            n_ctx=asked.context,
            n_threads=threads,
            n_threads_batch=threads,
            verbose=False,
        )
        self.grammar = LlamaGrammar.from_json_schema(
            json.dumps(keys.schema), verbose=False
        )
        self.keys = keys
        self.shots = shots
        self.chat = not shots and asked.chat
        self.max_tokens = asked.max_tokens

    def answer(self, source: str) -> tuple[str, int]:
        """What the model writes about a text, and the number of its tokens."""
        options = {
            "max_tokens": self.max_tokens,
            "temperature": 0.0,
            "grammar": self.grammar,
        }
        if self.chat:
            names = json.dumps([*self.keys.schema["properties"]], ensure_ascii=False)
            content = CHAT_PROMPT.format(source=source, keys=names[1:-1])
            made = self.model.create_chat_completion(
                [{"role": "user", "content": content}], **options
            )
            text = made["choices"][0]["message"]["content"]
        else:
            made = self.model.create_completion(
                prompt_of(source, self.shots, self.keys.schema), **options
            )
            text = made["choices"][0]["text"]
        return text, made["usage"]["completion_tokens"]

    def line(self, record: Record) -> dict[str, Any]:
        """A line of predictions. An object that is no whole JSON, since a limit cut it, is empty."""
        began = perf_counter()
        text, tokens = self.answer(record.source)
        seconds = perf_counter() - began
        truncated = None
        try:
            value = json.loads(text)
        except ValueError:
            value = {}
            truncated = "max_tokens"
        made = {
            "id": record.id,
            "prediction": value,
            "steps": tokens,
            "tokens": tokens,
            "truncated": truncated,
        }
        return made | {
            "seconds": round(seconds, 6),
            "source": record.source,
            "target": record.target_fields,
        }


def lines_of(asked: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """The lines of predictions for the texts that the options name."""
    keys = keys_of(asked.schema, asked.fields)
    shots = shots_of(asked.shots, keys.fields)
    writer = Writer(asked.model, keys, shots, asked)
    for record in islice(read_records(asked.data), asked.limit):
        yield writer.line(record)


def main() -> None:
    """Write the predictions, and say how long it took."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("model")
    parser.add_argument("data")
    parser.add_argument("out", type=Path)
    parser.add_argument("--fields")
    parser.add_argument("--schema")
    parser.add_argument("--shots", metavar="FILE:N")
    parser.add_argument("--no-chat", dest="chat", action="store_false")
    parser.add_argument("--limit", type=int)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--max-tokens", type=int, default=512)
    parser.add_argument("--context", type=int, default=8_192)
    asked = parser.parse_args()
    count = 0
    cut = 0
    seconds = 0.0
    tokens = 0
    try:
        with asked.out.open("w", encoding="utf-8") as file:
            for line in lines_of(asked):
                file.write(json.dumps(line, ensure_ascii=False) + "\n")
                file.flush()
                count += 1
                cut += line["truncated"] is not None
                seconds += line["seconds"]
                tokens += line["tokens"]
    except UserError as error:
        sys.exit(str(error))
    print(
        f"{count} texts, {cut} cut: {tokens / count:.1f} tokens and {seconds / count:.2f} s a text"
    )


if __name__ == "__main__":
    main()
