"""A wheel that is built where there is a C++ compiler carries the kernels; without one it is pure Python."""

import os
import runpy
import shutil
import sysconfig
import tempfile
from pathlib import Path

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

NATIVE = Path("pipedec_cli/model/engine/native")


class KernelsHook(BuildHookInterface):
    """Compiles each variant into a folder of its own, from which the wheel takes it."""

    def initialize(self, version, build_data):
        """Add the libraries to a wheel for Linux. PIPEDEC_NATIVE=0 and an editable install get none."""
        platform, off = (
            sysconfig.get_platform(),
            os.environ.get("PIPEDEC_NATIVE") == "0",
        )
        if (
            version == "editable"
            or off
            or platform not in ("linux-x86_64", "linux-aarch64")
        ):
            return
        self.folder = tempfile.mkdtemp()
        variants = runpy.run_path(str(Path(self.root) / NATIVE / "variants.py"))
        made = variants["compile_variants"](Path(self.folder))
        build_data["force_include"] |= {
            str(path): str(NATIVE / path.name) for path in made
        }
        self.app.display_info(
            f"kernels: {', '.join(path.name for path in made) or 'no C++ compiler can make them'}"
        )
        if made:
            build_data |= {
                "pure_python": False,
                "tag": f"py3-none-{platform.replace('-', '_')}",
            }

    def finalize(self, version, build_data, artifact_path):
        """Delete what was compiled."""
        if hasattr(self, "folder"):
            shutil.rmtree(self.folder)
