"""A chat model's tokenizer, made on the spot."""

from __future__ import annotations

from typing import Any, Final

from pipedec_cli.model.scratch import train_tokenizer
from tests.checkpoints import TOLD

#: As those of Qwen and SmolLM are.
CHATML: Final = (
    "{% for message in messages %}<|im_start|>{{ message.role }}\n"
    "{{ message.content | trim }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
DATED: Final = CHATML.replace("role }}", "role }} on {{ strftime_now('%d %b %Y') }}", 1)


def chat_tokenizer(template: str = CHATML, vocabulary: int = 500) -> Any:
    """Of the tests' texts; a turn ends with a token that the tokenizer has no name for."""
    from tokenizers import AddedToken

    tokenizer = train_tokenizer(
        [text for source, told in TOLD for text in (source, *told)] * 4, vocabulary, begins=True
    )
    tokenizer.add_tokens([AddedToken(text, special=True) for text in ("<|im_start|>", "<|im_end|>")])
    tokenizer.chat_template = template
    return tokenizer
