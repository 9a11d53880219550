"""Start a server, ask it typed questions about a text, and stop it.

``python serve_and_decide.py --model MODEL [--text TEXT]``. MODEL is an ordinary
decoder-only model with a chat template: a folder, a GGUF file, or the name of a model on
the Hugging Face hub. The server needs ``pip install '.[serve]'``.
"""

import argparse
import json
import socket
import subprocess
import sys
import time
from collections.abc import Sequence
from typing import Any
from urllib.request import Request, urlopen

MAIL = "Where is order 4471? I need it today."
QUESTIONS = [
    {"type": "predicate", "name": "urgent", "instructions": "Is it urgent?"},
    {
        "type": "choice",
        "name": "topic",
        "instructions": "What is it about?",
        "choices": [{"value": "delivery"}, {"value": "invoice"}, {"value": "other"}],
    },
    {"type": "pipedec_text", "name": "order", "instructions": "Which order is it?"},
]


def free_port() -> int:
    """A port of this machine that nobody uses."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        port: int = listening.getsockname()[1]
    return port


def wait_until_ready(address: str, server: subprocess.Popen[bytes]) -> None:
    """Return when the server answers. A large model takes minutes to load at its first start."""
    while server.poll() is None:
        try:
            urlopen(f"{address}/ready", timeout=5).close()
        except OSError:  # nobody listens yet
            time.sleep(0.2)
        else:
            return
    raise SystemExit("the server has ended; its last lines say why")


def decide(address: str, text: str) -> Any:
    """Ask all questions about a text in one request."""
    body = json.dumps({"model": "decider", "input": text, "questions": QUESTIONS})
    headers = {"content-type": "application/json"}
    request = Request(f"{address}/v1/decisions", body.encode(), headers)
    with urlopen(request, timeout=600) as response:
        return json.load(response)


def main(arguments: Sequence[str] | None = None) -> None:
    """Print the answers to the questions about a text, each with its probability."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", default="Qwen/Qwen3-0.6B")
    parser.add_argument("--text", default=MAIL)
    chosen = parser.parse_args(arguments)
    port = free_port()
    address = f"http://127.0.0.1:{port}"
    command = [sys.executable, "-m", "pipedec_cli", "serve"]
    command += ["--model", chosen.model, "--name", "decider", "--port", str(port)]
    with subprocess.Popen(command) as server:
        try:
            wait_until_ready(address, server)
            for answer in decide(address, chosen.text)["answers"]:
                print(json.dumps(answer))
        finally:
            server.terminate()  # it ends what it has begun, and then itself


if __name__ == "__main__":
    main()
