"""The keywords of JSON Schema, and what is done with each."""

from typing import Any, Final

#: A part of a schema: its keywords and their values.
Said = dict[str, Any]
#: The keywords of numbers that a row is held to.
OF_NUMBERS: Final = (
    "minimum",
    "maximum",
    "exclusiveMinimum",
    "exclusiveMaximum",
    "multipleOf",
)
#: The keywords that a row is held to while it is written, beside type and enum; see
#: `grammar_of`.
HELD: Final = (
    *OF_NUMBERS,
    "pattern",
    "format",
    "minLength",
    "maxLength",
    "minItems",
    "maxItems",
    "uniqueItems",
)
#: How the values of a key are scored; see `parse_metrics`.
METRIC: Final = "x-metric"
#: Says that a value may be worded by the model: it need not stand in the text.
FREE: Final = "x-free"
#: Keywords that a row is not held to; a list keeps each of its items once.
HOLD_NOTHING: Final = frozenset([METRIC, FREE, "uniqueItems"])
#: Keywords that are read, or that say nothing of what rows write.
_TAKEN: Final = (
    "type",
    "enum",
    "const",
    "properties",
    "required",
    "items",
    "prefixItems",
    "description",
    "$ref",
    "anyOf",
    "oneOf",
    "allOf",
    "title",
    "default",
    "example",
    "examples",
    "$schema",
    "$id",
    "$comment",
    "$defs",
    "definitions",
    "$anchor",
    "nullable",
    METRIC,
    FREE,
    "deprecated",
    "readOnly",
    "writeOnly",
    "discriminator",
    "additionalProperties",
    "patternProperties",
    "propertyNames",
    "minProperties",
    "maxProperties",
    "unevaluatedProperties",
    "unevaluatedItems",
    "additionalItems",
    "then",
    "else",
    "contentSchema",
)
#: Keywords that no row is held to; the object is checked at the end.
CHECKED: Final = frozenset(
    [
        "not",
        "if",
        "dependentRequired",
        "dependentSchemas",
        "dependencies",
        "contains",
        "minContains",
        "maxContains",
        "contentEncoding",
        "contentMediaType",
    ]
)
#: Keywords that refuse a part.
REFUSED: Final = frozenset(["$dynamicRef", "$recursiveRef"])
KNOWN: Final = CHECKED | REFUSED | {*_TAKEN, *HELD}
#: The formats that a row is held to.
HELD_FORMATS: Final = frozenset(
    [
        "date",
        "time",
        "date-time",
        "duration",
        "email",
        "idn-email",
        "hostname",
        "idn-hostname",
        "ipv4",
        "ipv6",
        "uuid",
        "uri",
        "uri-reference",
        "uri-template",
        "iri",
        "iri-reference",
        "json-pointer",
        "relative-json-pointer",
        "regex",
    ]
)
