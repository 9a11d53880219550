"""Make an object of a pydantic class out of each text, without training.

``python extract_with_a_class.py --model MODEL [TEXT ...]``. MODEL is an ordinary
decoder-only model: a folder, a GGUF file, or the name of a model on the Hugging Face hub.
"""

import argparse
from collections.abc import Sequence
from datetime import date
from typing import Literal

from pydantic import BaseModel

import pipedec_cli as pipedec

TEXTS = [
    "A table for four on 12 March 2026, please. By the window, if you can.",
    "We are two, and come on 3 May 2026 for lunch.",
]


class Booking(BaseModel):
    """What a guest asks for."""

    guests: int
    day: date
    meal: Literal["lunch", "dinner"] | None


def main(arguments: Sequence[str] | None = None) -> None:
    """Print the object of each text, and how sure the model is of each value."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("texts", nargs="*", default=TEXTS)
    parser.add_argument("--model", default="Qwen/Qwen3-0.6B")
    chosen = parser.parse_args(arguments)
    for result in pipedec.extract(chosen.texts, Booking, model=chosen.model):
        if result.value is None:  # the class does not take what the model found
            print(result.fields, "but:", *result.violations)
        else:
            print(result.value.guests, "guests on", result.value.day.isoformat())
            print("  how sure:", result.confidence)


if __name__ == "__main__":
    main()
