"""A chat model that is not ours, and its tokenizer, made on the spot."""

from pathlib import Path
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
        [text for source, told in TOLD for text in (source, *told)] * 4,
        vocabulary,
        begins=True,
    )
    tokenizer.add_tokens(
        [AddedToken(text, special=True) for text in ("<|im_start|>", "<|im_end|>")]
    )
    tokenizer.chat_template = template
    return tokenizer


def foreign(folder: Path, *, template: str | None = CHATML) -> Path:
    """A small Llama that pipedec has not trained, with a chat template, whose own texts end elsewhere than its turns."""
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM

    tokenizer = chat_tokenizer(template or "")
    tokenizer.chat_template = template
    sizes = {
        "hidden_size": 32,
        "intermediate_size": 64,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
    }
    ids = {"bos_token_id": 3, "eos_token_id": 1, "pad_token_id": 0}
    config = AutoConfig.for_model("llama", vocab_size=len(tokenizer), **sizes, **ids)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        AutoModelForCausalLM.from_config(config).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder
