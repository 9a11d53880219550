"""The machine line of a report."""

import subprocess
import sys
import time

from pipedec_cli.compare.machine import (
    Machine,
    ProcessorTime,
    disturbance,
    processor_name,
)


def test_processor_has_the_name_that_the_system_gives_it(tmp_path):
    cpuinfo = tmp_path / "cpuinfo"
    cpuinfo.write_text(
        "processor\t: 0\nmodel name\t: Some  CPU @ 2.0GHz\nflags: x\nmodel name: another\n"
    )
    assert processor_name(cpuinfo) == "Some CPU @ 2.0GHz"
    assert processor_name(tmp_path / "none")  # its architecture


def test_line_tells_all_that_bears_on_speed_the_gpu_first():
    known = Machine("A CPU", 4, 8, 2, 24 * 2**30, None, "Linux x86_64", "3.11.1")
    line = "A CPU; 4 cores, 8 processors, 2 threads used; 24 GiB RAM; Linux x86_64; Python 3.11.1"
    assert known.line == line
    other = Machine(
        "A CPU", None, 8, 1, 2**30, "A GPU, 80 GiB", "Linux x86_64", "3.11.1"
    )
    assert other.line.startswith("A GPU, 80 GiB; A CPU; 8 processors, 1 thread used")


def test_what_others_used_is_what_this_process_did_not():
    before, after = ProcessorTime(100.0, 50.0, 7.0), ProcessorTime(110.0, 66.0, 15.0)
    assert after.others(before, processors=2) == (16 - 8) / 20
    assert after.others(after, processors=2) == 0.0
    assert ProcessorTime(110.0, 50.0, 17.0).others(before, 2) == 0.0
    assert "took 43% of the machine's processors" in disturbance(0.43)
    assert disturbance(0.05) is None


def test_the_work_of_a_child_is_no_others():
    work = "import sys\nwhile time.process_time() < 0.2: pass\nprint(1, flush=True); sys.stdin.read()"
    options = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen(
        [sys.executable, "-c", f"import time\n{work}"], **options
    ) as child:
        before = time.process_time()
        child.stdout.read(1)
        assert ProcessorTime.now().own - before >= 0.19
        child.communicate()
