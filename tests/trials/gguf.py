"""A GGUF file is read as transformers reads it, and decoded in llama.cpp as here.

    python -m tests.trials.gguf FILE.gguf [PROMPTS]     # a text a line; without them, facts of the demo's data

In float32 and greedy: 20 chat prompts of up to 128 tokens against
`transformers.generate` with `gguf_file=`, then the first 50 tokens of 10 of them in
llama.cpp, if llama-cpp-python is installed. For that the file is written again in
float32.
"""

import sys
from itertools import islice
from pathlib import Path
from tempfile import TemporaryDirectory

import torch

from pipedec_cli.data.demo import make_demo
from pipedec_cli.decoding.decoder import load
from pipedec_cli.model.checkpoint import load_checkpoint
from tests.model.gguf_files import write_gguf

COUNT, TOKENS = 20, 128
FEW, FIRST = 10, 50


def prompts_of(file):
    if file:
        return [
            line
            for line in Path(file).read_text(encoding="utf-8").splitlines()
            if line.strip()
        ][:COUNT]
    return [
        f"Write a short text about this: {one['source']}"
        for one in islice(make_demo(COUNT, 0), COUNT)
    ]


def ours(name, prompts):
    """The ids of each prompt, and the ids that are written behind it."""
    decoder = load(name)
    decoder.read_sources(chat=True)
    made = decoder.texts(prompts, decoder.method(max_tokens=TOKENS))
    return [
        (list(one.source_ids), list(one.grid[0][1])) for one in made
    ], decoder.checkpoint.eos


def theirs(name, prompts, eos):
    """The same of transformers."""
    from transformers import AutoModelForCausalLM, AutoTokenizer

    place, given = str(Path(name).parent), {"gguf_file": Path(name).name}
    tokenizer = AutoTokenizer.from_pretrained(place, **given)
    model = AutoModelForCausalLM.from_pretrained(
        place, dtype=torch.float32, **given
    ).eval()
    for prompt in prompts:
        turns = [{"role": "user", "content": prompt}]
        how = {"return_tensors": "pt", "return_dict": True}
        chat = tokenizer.apply_chat_template(turns, add_generation_prompt=True, **how)
        length = chat["input_ids"].shape[1]
        with torch.inference_mode():
            how = {
                "do_sample": False,
                "max_new_tokens": TOKENS,
                "eos_token_id": eos,
                "pad_token_id": eos,
            }
            made = model.generate(**chat, **how)
        yield chat["input_ids"][0].tolist(), made[0, length:].tolist()


def llama_cpp(file, prompts):
    """The first ids that llama.cpp writes behind prompts of ids, in float32."""
    import llama_cpp

    model = llama_cpp.Llama(
        file,
        n_ctx=1024,
        logits_all=False,
        verbose=False,
        type_k=0,
        type_v=0,
        flash_attn=False,
    )
    for ids in prompts:
        model.reset()
        yield list(
            islice(model.generate(ids, temp=0.0, top_k=1, repeat_penalty=1.0), FIRST)
        )


def ended(tokens, eos):
    return tokens[: tokens.index(eos)] if eos in tokens else tokens


def main():
    name, prompts = sys.argv[1], prompts_of(sys.argv[2] if len(sys.argv) > 2 else None)
    made, eos = ours(name, prompts)
    equal = 0
    for (prompt, tokens), (their_prompt, their_tokens) in zip(
        made, theirs(name, prompts, eos), strict=True
    ):
        same = prompt == their_prompt and ended(tokens, eos) == ended(their_tokens, eos)
        equal += same
        print(
            f"{'equal' if same else 'DIFFERENT'}: {len(prompt)} and {len(tokens)} tokens",
            flush=True,
        )
    print(f"{equal} of {len(made)} equal transformers' in float32")
    with TemporaryDirectory() as folder:
        file = f"{folder}/float32.gguf"
        write_gguf(load_checkpoint(name), file, "float32")
        again = 0
        for (_, tokens), their_tokens in zip(
            made, llama_cpp(file, [ids for ids, _ in made[:FEW]]), strict=False
        ):
            same = ended(tokens[:FIRST], eos) == ended(their_tokens, eos)
            again += same
            print(
                f"{'equal' if same else 'DIFFERENT'}: {len(their_tokens)} tokens",
                flush=True,
            )
    print(f"{again} of {FEW} equal llama.cpp's in float32, {FIRST} tokens each")
    sys.exit(equal < len(made) or again < FEW)


if __name__ == "__main__":
    main()
