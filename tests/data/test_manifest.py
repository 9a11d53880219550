import hashlib
import json
import subprocess
import sys
from pathlib import Path

from pipedec_cli.data.writing import PACKAGES, manifest


def test_a_manifest_holds_versions_settings_and_hashes_as_plain_json(tmp_path):
    path = tmp_path / "data.jsonl"
    path.write_text("x")
    made = json.loads(
        json.dumps(manifest({"out": Path("a/b"), "delays": (1, 2), "seed": 0}, inputs=[path, "-"]))
    )
    assert made["settings"] == {"out": "a/b", "delays": [1, 2], "seed": 0}
    assert made["inputs"][0] == {"path": str(path), "sha256": hashlib.sha256(b"x").hexdigest()}
    assert made["inputs"][1] == {"path": "-", "sha256": None}
    assert list(made["versions"]) == list(PACKAGES)
    assert made["versions"]["nltk"]


def test_a_manifest_is_made_without_importing_what_it_names():
    code = "import sys; from pipedec_cli.data.writing import manifest; manifest({}); print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"
