"""`pipedec bench`: what the method can give on this machine, without training."""

from pipedec_cli.data.writing import to_json
from pipedec_cli.jobs.report_settings import BenchSettings
from pipedec_cli.view.console import make_console, write_stdout
from pipedec_cli.view.progress import Terminal
from pipedec_cli.view.tables import show_sheet

EXAMPLES = """
pipedec bench                                     # T5-Base's shape, the lengths of WikiHowQA
pipedec bench --compare transformers,ctranslate2:int8 --dtypes float32,bfloat16,int8
pipedec bench --subsequences 8 --tokens 12 --source 512 --delays 1,2,3
pipedec bench --model scratch-qwen3-0.6b --compare transformers,ctranslate2
"""


def bench(settings: BenchSettings) -> None:
    """See in a minute what the method can give on this machine: speed without training, on forced lengths.

    The model computes every step; only the end of each subsequence is forced, for all
    decoders alike. Gains are split into fewer calls (the schedule) and faster calls
    (the kernels).
    """
    # Late, so that `pipedec --help` does not wait for numpy.
    from pipedec_cli.jobs.bench import bench as measure
    from pipedec_cli.view.results import bench_sheets

    measured, content = measure(settings, Terminal(quiet=settings.quiet))
    if settings.as_json:
        write_stdout(to_json(content, indent=2) + "\n")
    else:
        for sheet in bench_sheets(measured):
            show_sheet(make_console(stderr=False), sheet)
    if measured.conditions.stopped:
        raise KeyboardInterrupt
