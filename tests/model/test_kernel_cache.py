"""The folder of compiled kernels: what lies there is code, and is loaded only where nobody else can have put it."""

import os
import shutil
import stat
from types import SimpleNamespace

import pytest

from pipedec_cli.data.errors import UserError
from pipedec_cli.jobs.loading import warn_uncompiled
from pipedec_cli.model.engine.native import library as build
from pipedec_cli.model.engine.native.library import (
    BuildError,
    carried,
    carried_library,
    compiled,
    library,
)
from pipedec_cli.model.engine.native.variants import VARIANTS, compile_variants
from tests.model.engines import needs_kernels


@pytest.fixture
def compiler(monkeypatch, tmp_path):
    """Puts a script in a compiler's place, the last of whose arguments is the file to make."""
    path = tmp_path / "fake-cc"
    monkeypatch.setenv("CXX", str(path))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.delenv("PIPEDEC_NATIVE_FLAGS", raising=False)

    def stand_in(script):
        path.write_text(
            f'#!/bin/sh\n[ "$1" = --version ] && echo fake 1.0 && exit 0\n{script}\n'
        )
        path.chmod(0o755)

    return stand_in


MAKE = 'for made; do :; done; echo library > "$made"; chmod 777 "$made"'


@pytest.fixture
def cache(compiler, tmp_path):
    """The folder; the compiler writes down how it was called."""
    compiler(f'echo "$@" >> {tmp_path}/calls; {MAKE}')
    return tmp_path / "cache" / "pipedec"


def calls(cache):
    return (cache.parent.parent / "calls").read_text().splitlines()


def test_what_is_compiled_once_is_found_again_and_can_be_written_by_its_owner_alone(
    cache, caplog
):
    """Under a umask that lets a group write, too."""
    caplog.set_level("INFO", "pipedec")
    before = os.umask(0o002)
    try:
        made = compiled()
    finally:
        os.umask(before)
    assert compiled() == made and len(calls(cache)) == len(caplog.messages) == 1
    assert caplog.messages[0].startswith(
        "compiling encoder and decoder step for this machine"
    )
    assert (
        stat.S_IMODE(made.stat().st_mode) == stat.S_IMODE(cache.stat().st_mode) == 0o700
    )


def test_a_cache_without_room_is_named_and_nothing_is_compiled(
    cache, monkeypatch, tmp_path
):
    monkeypatch.setattr(
        build.shutil, "disk_usage", lambda _: SimpleNamespace(free=64_000)
    )
    with pytest.raises(
        BuildError, match=f"{cache} has no room for the compiled kernels"
    ):
        compiled()
    assert not (tmp_path / "calls").exists()


def link(made):
    made.rename(elsewhere := made.parent.parent / "elsewhere")
    made.symlink_to(elsewhere)


@pytest.mark.parametrize(
    "harm",
    [
        lambda made: made.write_bytes(made.read_bytes()[:3]),
        lambda made: made.with_name(f"{made.name}.sha256").unlink(),
        lambda made: made.chmod(0o720),
        link,
    ],
)
def test_a_library_that_is_torn_or_that_others_can_write_is_compiled_anew(cache, harm):
    made = compiled()
    harm(made)
    assert compiled() == made == compiled()
    assert made.read_text() == "library\n" and not made.is_symlink()
    assert len(calls(cache)) == 2


def test_a_folder_that_others_can_write_or_that_is_anothers_or_relative_is_not_used(
    cache, monkeypatch
):
    compiled()
    cache.chmod(0o770)
    with pytest.raises(BuildError, match="others can write there"):
        compiled()
    cache.chmod(0o700)
    monkeypatch.setattr(build.os, "geteuid", lambda: 4321)
    if os.getuid() == 0:
        os.chown(cache, 1234, -1)  # root's is everybody's
    with pytest.raises(BuildError, match="is another user's"):
        compiled()
    monkeypatch.setenv("XDG_CACHE_HOME", "cache")
    with pytest.raises(
        BuildError, match="XDG_CACHE_HOME is 'cache', not an absolute path"
    ):
        compiled()
    assert len(calls(cache)) == 1


def test_older_compilers_get_fewer_flags_and_one_that_fails_leaves_nothing_behind(
    compiler, cache
):
    """A cache that cannot be written is a reason, too."""
    compiler(f'for flag; do [ "$flag" = -fopenmp ] && exit 1; done; {MAKE}')
    compiled().unlink()
    compiler("exit 1")
    with pytest.raises(BuildError, match="fake-cc cannot compile"):
        compiled()
    assert [path.suffix for path in cache.iterdir()] == [".sha256"]
    shutil.rmtree(cache)
    cache.write_text("a file where a folder should be")
    with pytest.raises(BuildError, match="cannot be kept"):
        compiled()


@pytest.fixture
def package(monkeypatch, tmp_path):
    """Gives this computer some CPU's flags and carried libraries; the package's folder is empty until then."""
    monkeypatch.delenv("PIPEDEC_NATIVE", raising=False)
    monkeypatch.setattr(build, "SOURCE", tmp_path / "package" / "kernels.cpp")

    def make(*flags, carries=()):
        monkeypatch.setattr(
            build, "_cpu", lambda: ["model name : X", f"flags : fpu {' '.join(flags)}"]
        )
        build.SOURCE.parent.mkdir()
        build.SOURCE.touch()
        for variant in carries:
            (build.SOURCE.parent / f"kernels-{variant}.so").write_text("no library")

    carried_library.cache_clear()
    yield make
    carried_library.cache_clear()


@pytest.mark.parametrize(
    ("has", "more", "chosen"),
    [
        ("avx2", [], "avx2"),
        ("avx512", ["avx_vnni"], "avx512"),
        ("amx", [], "amx"),
        (None, ["avx2"], None),
    ],
)
def test_the_best_variant_that_the_package_has_for_this_cpu_is_loaded(
    package, compiler, has, more, chosen
):
    package(*VARIANTS.get(has, ()), *more, carries=VARIANTS)
    assert carried() == (chosen and build.SOURCE.with_name(f"kernels-{chosen}.so"))
    assert has is None or carried("avx2").name == "kernels-avx2.so"


def test_a_variant_that_the_package_lacks_or_that_has_other_flags_is_compiled(
    package, cache, monkeypatch
):
    package(*VARIANTS["avx512"], carries=["avx2"])
    assert carried() is None
    compiled("avx512")
    compiled("avx2")
    assert (
        "-mavx512vnni -fopenmp" in calls(cache)[0]
        and "-mavx2 -mfma -mf16c -fopenmp" in calls(cache)[1]
    )
    assert not [call for call in calls(cache) if "-march=native" in call]
    assert carried("avx2")
    monkeypatch.setenv("PIPEDEC_NATIVE_FLAGS", "-g '-DNAME=a b'")
    assert carried("avx2") is None
    compiled("avx2")
    assert "-g -DNAME=a b" in calls(cache)[2]


def test_a_compiler_goes_before_avx2_where_the_cpu_has_more(
    package, compiler, monkeypatch, tmp_path
):
    package(*VARIANTS["avx2"], "avx_vnni", carries=["avx2"])
    compiler(MAKE)
    assert carried() is None
    monkeypatch.setenv("PATH", str(tmp_path / "none"))
    monkeypatch.delenv("CXX")
    assert carried().name == "kernels-avx2.so"


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        (
            "sse2",
            "PIPEDEC_NATIVE is 'sse2'; give 0, avx2, avx512, avx512_bf16, amx, or leave it out",
        ),
        ("amx", "PIPEDEC_NATIVE is amx, and this CPU has no amx_tile; leave it out"),
    ],
)
def test_a_variant_that_is_not_known_or_not_for_this_cpu_is_refused(
    package, monkeypatch, asked, message
):
    package(*VARIANTS["avx512_bf16"])
    monkeypatch.setenv("PIPEDEC_NATIVE", asked)
    with pytest.raises(UserError) as refused:
        library()
    assert str(refused.value) == message


def test_a_wheel_gets_the_variants_that_the_compiler_can_make(
    compiler, monkeypatch, tmp_path
):
    compiler(f'for flag; do [ "$flag" = -mamx-tile ] && exit 1; done; {MAKE}')
    made = {path.name for path in compile_variants(tmp_path)}
    assert made == {"kernels-avx2.so", "kernels-avx512.so", "kernels-avx512_bf16.so"}
    monkeypatch.setenv("PATH", str(tmp_path / "none"))
    monkeypatch.delenv("CXX")
    assert compile_variants(tmp_path) == []


@pytest.fixture
def whole():
    """The path of this computer's kernels, which must be found before `package` hides their source."""
    return library().path


def model_on(device, family):
    config = SimpleNamespace(model_type=family)
    return SimpleNamespace(
        device=SimpleNamespace(type=device), model=SimpleNamespace(config=config)
    )


@needs_kernels
def test_a_library_that_came_with_the_package_serves_without_a_compiler(
    whole, package, monkeypatch, tmp_path, caplog
):
    """Without a word; but not one that cannot be loaded."""
    package(*VARIANTS["avx2"], carries=["avx2"])
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("CXX", raising=False)
    monkeypatch.delenv("PIPEDEC_NATIVE_FLAGS", raising=False)
    for content, warnings in ((b"damaged", 1), (whole.read_bytes(), 0)):
        carried().write_bytes(content)
        carried_library.cache_clear()
        caplog.clear()
        warn_uncompiled(model_on("cpu", "t5"))
        assert len(caplog.messages) == warnings


def test_without_a_compiler_there_is_nothing_to_compile(monkeypatch, tmp_path, caplog):
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("CXX", raising=False)
    with pytest.raises(BuildError, match=r"no C\+\+ compiler"):
        compiled()
    caplog.set_level("INFO", "pipedec")
    for device, family in (
        ("cuda", "t5"),
        ("cpu", "bart"),
        ("cpu", "t5"),
        ("cpu", "llama"),
    ):
        warn_uncompiled(model_on(device, family))
    message, again = (
        caplog.records
    )  # not for a family without kernels; a terminal shows it once
    assert message.levelname == "WARNING" and message.message == again.message
    assert "torch decodes, and takes 3 to 5 times as long" in message.message
    assert "apt-get install g++" in message.message
