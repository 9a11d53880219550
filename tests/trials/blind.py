"""Blind rows of a real model against `transformers.generate` for each row's prompt alone: same tokens, near-ties counted.

`python -m tests.trials.blind MODEL DATA.jsonl [--shots N]`; float32 on the CPU. DATA has objects as targets: the first
records are sources, the examples come from the records behind them.
"""

import argparse
from pathlib import Path

import torch
from transformers import AutoModelForCausalLM

from pipedec_cli.data.inputs import read_records
from pipedec_cli.data.schema import learn_schema
from pipedec_cli.jobs.loading import choose_shots
from pipedec_cli.model.decoder import load
from pipedec_cli.model.rows import Rows, blind_decoder

#: Two best logits closer than this are a near-tie between two implementations in float32.
TIE = 1e-3


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model")
    parser.add_argument("data", type=Path)
    parser.add_argument("--shots", type=int, default=0)
    parser.add_argument("--sources", type=int, default=25)
    parser.add_argument("--batch-size", type=int, default=8)
    given = parser.parse_args()
    records = [record for record, _ in zip(read_records(str(given.data)), range(400), strict=False)]
    fields, _ = learn_schema(records)
    shots = choose_shots(records[given.sources :], fields, given.shots)
    decoder = blind_decoder(load(given.model), Rows(fields, shots=tuple(shots)))
    sources = [record.source for record in records[: given.sources]]
    made = list(decoder.texts(sources, batch_size=given.batch_size))
    alone = list(decoder.texts(sources, batch_size=1))
    assert [one.grid for one in alone] == [one.grid for one in made], "batches change a token"
    model = AutoModelForCausalLM.from_pretrained(given.model, dtype=torch.float32).eval()
    how = {
        "max_new_tokens": decoder.method().limits.time_max,
        "do_sample": False,
        "temperature": None,
        "top_p": None,
        "top_k": None,
    }
    ends = [decoder.checkpoint.eos, *sorted(decoder.ends)]
    rows = equal = ties = 0
    for one in made:
        assert one.steps == max(len(tokens) for _, tokens in one.grid), "a call too many"
        for known, (_, tokens) in zip(decoder.blind.known, one.grid, strict=True):
            prompt = torch.tensor([[*one.source_ids, *known]])
            text = model.generate(
                prompt, attention_mask=torch.ones_like(prompt), eos_token_id=ends, pad_token_id=ends[0], **how
            )
            said = text[0, prompt.shape[1] :].tolist()
            rows, equal = rows + 1, equal + (said == list(tokens))
            if said != list(tokens):
                same = next(n for n, (a, b) in enumerate(zip(said, tokens, strict=False)) if a != b)
                with torch.no_grad():
                    logits = model(torch.cat([prompt, text[:, prompt.shape[1] :][:, :same]], dim=1)).logits[
                        0, -1
                    ]
                first, second = logits.topk(2).values.tolist()
                ties += first - second < TIE
                print(f"source {one.id}, token {same}: the two best logits lie {first - second:.2e} apart")
    print(f"{rows} rows: {equal} equal, {ties} near-ties, {rows - equal - ties} others")
    if rows - equal - ties:
        raise SystemExit(1)


if __name__ == "__main__":
    main()
