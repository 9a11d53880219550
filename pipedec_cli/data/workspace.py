"""Where the commands find each other's results when no path is given.

pipedec-workspace/
    data/          train.jsonl, dev.jsonl, test.jsonl and segmentation.json     (segment)
    models/        pipelined/, sequential/: folders that transformers loads     (train)
    generations/   NAME.jsonl and NAME.manifest.json, a decoder each            (generate, report)
    scores/        NAME.json and NAME.examples.jsonl                            (score)
    report/        report.json, report.md                                       (report)
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from pipedec_cli.data.errors import UserError
from pipedec_cli.data.records import SplitName

VARIABLE = "PIPEDEC_WORKSPACE"
DEFAULT = Path("pipedec-workspace")


@dataclass(frozen=True, slots=True)
class Workspace:
    """A folder in which every step of the workflow has its place. Nothing is made until a command writes there."""

    root: Path

    @classmethod
    def find(cls, given: Path | None = None) -> Workspace:
        """The folder that was given, else the one that PIPEDEC_WORKSPACE names, else ``pipedec-workspace`` here."""
        return cls(given or Path(os.environ.get(VARIABLE) or DEFAULT))

    @property
    def data(self) -> Path:
        """The folder of the segmented splits."""
        return self.root / "data"

    def split(self, name: SplitName) -> Path:
        """The file of one split."""
        return self.data / f"{name}.jsonl"

    @property
    def segmentation(self) -> Path:
        """How the targets were split: a `Segmentation` and what `segment` counted, as JSON."""
        return self.data / "segmentation.json"

    @property
    def sentences(self) -> Path:
        """What was learnt of the data's sentences, so that other texts can be segmented as the targets were."""
        return self.data / "sentences.json"

    def model(self, decoder: str) -> Path:
        """The checkpoint folder of ``pipelined`` or ``sequential``."""
        return self.root / "models" / decoder

    def generations(self, name: str) -> Path:
        """The predictions of one decoder, such as ``pipelined-delay2``."""
        return self.root / "generations" / f"{name}.jsonl"

    @property
    def scores(self) -> Path:
        """The folder of saved scores."""
        return self.root / "scores"

    @property
    def report(self) -> Path:
        """The folder of report.json and report.md."""
        return self.root / "report"

    def require(self, path: Path, made_by: str) -> Path:
        """The path, if it is there.

        Raises:
            UserError: naming the command that makes it.
        """
        if not path.exists():
            raise UserError(f"{path} is not there yet", todo=f"run `{made_by}` first, or give a path")
        return path
