"""What a caller asks of a decoding method."""

from dataclasses import dataclass

from pipedec_cli.data.errors import UserError
from pipedec_cli.data.records import Delay
from pipedec_cli.model.arguments import check_positive_int
from pipedec_cli.model.checkpoint import PLAIN, Checkpoint
from pipedec_cli.pipeline.grid import EmptyRows
from pipedec_cli.pipeline.schedule import Fixed, Schedule, Waiting, Whole


@dataclass(frozen=True, slots=True)
class Choice:
    """What a caller asks of a method. None is as the checkpoint was trained.

    `delay` is Δt in time-steps, or ``wait``. `force` allows a delay that the checkpoint
    was not trained for.
    """

    delay: Delay | None = None
    empty_rows: EmptyRows | None = None
    stop_on_repeat: bool | None = None
    time_max: int | None = None
    sub_max: int | None = None
    max_tokens: int | None = None
    force: bool = False

    def __post_init__(self) -> None:
        for name in ("time_max", "sub_max", "max_tokens"):
            check_positive_int(name, getattr(self, name))

    def refuse(self, checkpoint: Checkpoint, *, listed: bool = False) -> None:
        """Raise a UserError for a choice that means nothing to a checkpoint that writes fields, whose rows are all known.

        If there are lists of objects (`listed`), a delay applies to their items.
        """
        for name in ("delay", "empty_rows", "stop_on_repeat", "sub_max"):
            applies = listed and name == "delay"
            if getattr(self, name) is None or applies:
                continue
            what = f"{checkpoint.name} writes fields, a row for each and all at once: {name} does not apply"
            raise UserError(what, todo=f"leave {name} out")

    def schedule(self, checkpoint: Checkpoint) -> Schedule:
        """When rows start: as was chosen, else as the checkpoint was trained.

        Raises a UserError for a delay that it was not trained for.
        """
        if self.delay != "wait":
            check_positive_int("delay", self.delay, "wait")
        settings = checkpoint.settings or PLAIN
        if settings.decoder == "sequential":
            if self.delay in (None, "wait"):
                return Whole()
            what = f"{checkpoint.name} is a sequential model and has no delay"
            todo = "leave --delay out, or use a checkpoint that `pipedec train` made with --decoder pipelined"
            raise UserError(what, todo=todo)
        trained = settings.delay
        wanted = self.delay or settings.usual_delay
        if trained not in ("any", wanted) and not self.force:
            only = f"{checkpoint.name} was trained for delay {trained} only"
            loss = "it would take the first later exploration for the end and drop the rest of the text"
            todo = f"use delay {trained}, or train with --delay any"
            raise UserError(f"{only}; at {wanted} {loss}", todo=todo)
        return Fixed(wanted) if isinstance(wanted, int) else Waiting()
