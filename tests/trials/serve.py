"""`pipedec serve` under load and under fire: `python -m tests.trials.serve --model M --data docs.jsonl [--schema S.json]`.

A server runs in a process of its own, and clients ask it over HTTP. Every answer must
be what `pipedec generate` writes, whatever others do: broken bodies, slow clients,
clients that leave, a full queue, a kill and a restart, SIGTERM. Then 1, 4 and 16
clients ask in a closed loop for some seconds each. What follows ``--`` goes to both
commands.

``--shared N`` makes N documents of pieces of these: they share beginnings of any
length. It sends ``--cases`` requests instead, and other clients leave. ``--cache-mb``
should be small. The trial fails if a text is wrong, or if nothing was taken over or
dropped.

``--routes N`` sends so many requests to all routes, whole and streamed, with damaged
bodies and clients that leave among them. Texts and objects must be those of `pipedec
generate`, and decisions those of a server that takes over nothing and is asked alone.
It needs a chat model and ``--schema``.

``--beside COMMAND --body FILE`` puts the load on another server instead, whose texts
are not compared: a command with --port, and the JSON of a request in whose prompt
``{source}`` stands.
"""

import argparse
import gzip
import http.client
import json
import random
import shlex
import signal
import socket
import statistics
import subprocess
import sys
import threading
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import psutil

from pipedec_cli.data.inputs import read_records
from tests.trials.schemas import hostile_schema, random_schema

HEAD = {"Content-Type": "application/json"}
#: `pipedec` that takes over nothing it has read.
PLAIN = """
from pipedec_cli.cli.app import main
from pipedec_cli.model.engine.sequences import Sequences
Sequences._known_of = lambda *_, **__: (0, ())
main()
"""


class Server:
    """A server in a process. `wanted` are the right texts by source."""

    def __init__(
        self,
        options,
        wanted,
        schema,
        port=0,
        program=("-m", "pipedec_cli"),
    ):
        self.options, self.wanted, self.schema, self.log = options, wanted, schema, []
        command = [
            sys.executable,
            *program,
            "serve",
            "--port",
            str(port),
            "--name",
            "m",
            *options,
        ]
        self.process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
        for event in self.events():
            if event["event"] == "ready":
                self.port = int(event["url"].rpartition(":")[2])
                break
        else:
            raise SystemExit(f"the server did not start: {self.log}")
        self.reader = threading.Thread(target=lambda: [*self.events()], daemon=True)
        self.reader.start()

    def events(self):
        """The lines of the log, as they come. A line that is no JSON is told as wrong."""
        for line in self.process.stderr or ():
            try:
                self.log.append(json.loads(line))
            except ValueError:
                print(f"WRONG line of the log: {line!r}", flush=True)
            else:
                yield self.log[-1]

    def body(self, source, **more):
        form = {
            "type": "json_schema",
            "json_schema": {"name": "x", "schema": self.schema},
        }
        asked = {"response_format": form} if self.schema else {}
        return json.dumps({"model": "m", "prompt": source, **asked, **more}).encode()

    def raw(self, source, stream):
        """A whole request, head and body."""
        body = self.body(source, stream=stream)
        head = f"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
        return head.encode() + body

    def send(self, body, path="/v1/completions"):
        made = http.client.HTTPConnection("127.0.0.1", self.port, timeout=300)
        try:
            made.request("POST" if body else "GET", path, body, HEAD)
            answer = made.getresponse()
            return answer.status, answer.read(), answer.headers
        finally:
            made.close()

    def ask(self, source):
        """How a request ends: right, wrong, or its status."""
        try:
            status, answer, headers = self.send(self.body(source))
        except (OSError, http.client.HTTPException):
            time.sleep(0.1)
            return "no connection"
        if status != 200:
            assert b"Traceback" not in answer and "error" in json.loads(answer)
            return (
                f"{status}"
                if status != 429 or headers["retry-after"]
                else "429 without Retry-After"
            )
        text, wanted = json.loads(answer)["choices"][0]["text"], self.wanted[source]
        return "answered" if wanted is None else "right" if text == wanted else "WRONG"

    def leave(self, _):
        """Ask, and go soon."""
        with socket.create_connection(("127.0.0.1", self.port)) as made:
            made.sendall(
                self.raw(
                    random.choice([*self.wanted]), stream=bool(random.randrange(2))
                )
            )
            time.sleep(random.random() / 4)

    def counts(self):
        """The metrics."""
        from prometheus_client.parser import (
            text_string_to_metric_families,
        )  # late: of the extra `serve`

        families = text_string_to_metric_families(
            self.send(b"", "/metrics")[1].decode()
        )
        samples = [sample for family in families for sample in family.samples]
        return {
            sample.name.removeprefix("pipedec_"): int(sample.value)
            for sample in samples
        }

    def places(self):
        """How many requests run and wait."""
        found = self.counts()
        return found["running"], found["waiting"]

    def settle(self):
        for _ in range(6000):
            if self.places() == (0, 0):
                break
            time.sleep(0.05)
        return self.places()

    def together(self, count, work):
        found = [None] * count
        threads = [
            threading.Thread(target=lambda n=n: found.__setitem__(n, work(n)))
            for n in range(count)
        ]
        for one in threads:
            one.start()
        for one in threads:
            one.join()
        return found

    @contextmanager
    def others(self, count=4):
        """Good clients that ask all the while."""
        ends, over, sources = Counter[str](), threading.Event(), [*self.wanted]

        def work(number):
            while not over.is_set():
                ends[self.ask(random.choice(sources))] += 1

        running = threading.Thread(target=self.together, args=(count, work))
        running.start()
        try:
            yield ends
        finally:
            over.set()
            running.join()


class Peer(Server):
    """Another server of OpenAI's API."""

    def __init__(self, command, sources, form):
        self.wanted, self.form = dict.fromkeys(sources), form
        parts = shlex.split(command)
        self.port = int(parts[parts.index("--port") + 1])
        self.process = subprocess.Popen(
            parts, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        while self.ask(sources[0]) == "no connection":
            if self.process.poll() is not None:
                raise SystemExit(f"{command} ended")

    def body(self, source, **more):
        return json.dumps(
            self.form | {"prompt": self.form["prompt"].replace("{source}", source)}
        ).encode()


def mangled(body, draw):
    """A body that chance has damaged."""
    kind, data = draw.randrange(6), bytearray(body)
    if kind == 0:
        return bytes(data[: draw.randrange(1, len(data))])
    if kind == 1:
        for _ in range(draw.randrange(1, 8)):
            data[draw.randrange(len(data))] = draw.randrange(256)
        return bytes(data)
    if kind == 2:
        long = [b"[" * 50_000, b"\x00" * 99, b'{"a":' * 9_999, b" " * 2_000_000]
        twice = body[:-1] + b"," + body[1:]
        return draw.choice([b"{}", b"null", b'"a"', twice, gzip.compress(body), *long])
    given = json.loads(body)
    if kind == 3:
        make = draw.choice([hostile_schema, random_schema])
        schema = {"name": "x", "schema": make(draw)}
        given["response_format"] = {"type": "json_schema", "json_schema": schema}
        return json.dumps(given).encode()
    names = ["max_tokens", "stream", "stream_options", "response_format", "temperature"]
    names += ["tools", "tool_choice", "input", "text", "questions", "state", "messages"]
    odd = [
        None,
        -1,
        2**70,
        1e308,
        "",
        "\ud800",
        [],
        {},
        True,
        [[]],
        {"type": "json_schema"},
    ]
    given[draw.choice([*given, *names])] = draw.choice(odd)
    return json.dumps(given).encode()


def faults(server, cases, draw):
    """Tell how requests ended: of good clients, while others misbehave."""
    sources = [*server.wanted]

    def broken(_):
        ends = Counter[Any]()
        for _ in range(cases // 4):
            status, answer, _ = server.send(
                mangled(server.body(draw.choice(sources)), draw)
            )
            assert b"Traceback" not in answer
            if status >= 500 and status != 503:
                print(f"WRONG status {status}: {answer[:500]!r}", flush=True)
            ends[status] += 1
        return ends

    def slow(number):
        with socket.create_connection(("127.0.0.1", server.port)) as made:
            for byte in server.raw(sources[0], stream=True)[
                : 60 if number % 2 else None
            ]:
                made.sendall(bytes([byte]))
                time.sleep(0.1 if number % 2 else 0.002)
            for _ in range(20 if number % 2 == 0 else 0):
                made.recv(1)
                time.sleep(0.1)

    kinds = [("broken", 4, broken), ("slow", max(2, cases // 50), slow)]
    kinds.append(("leaving", cases // 16, server.leave))
    for name, count, work in kinds:
        with server.others() as ends:
            found = server.together(count, work)
        told = sum(filter(None, found), Counter()) if name == "broken" else count
        print(
            f"{name}: {told}; others {dict(ends)}; places left {server.settle()}",
            flush=True,
        )
    full = Counter(
        server.together(150, lambda n: server.ask(sources[n % len(sources)]))
    )
    print(f"full queue: {dict(full)}; places left {server.settle()}", flush=True)


def mixed(sources, count, draw):
    """So many texts. Each begins as another one does, up to any place, and goes on as a source ends."""
    made = dict.fromkeys(sources[:1])
    while len(made) < count:
        one, other = draw.choice([*made]), draw.choice(sources)
        text = (
            one[: draw.randrange(len(one))] + other[draw.randrange(len(other)) :]
        ).strip()
        made |= {text: None} if text else {}
    return [*made]


def shared(server, cases):
    """Ask so often, beside clients that leave, and tell how requests ended. A SystemExit if not all is well."""
    sources = [*server.wanted]

    def work(number):
        if number % 10 == 0:
            server.leave(number)
        return server.ask(random.choice(sources))

    with ThreadPoolExecutor(16) as clients:
        told = Counter(clients.map(work, range(cases)))
    left, found = server.settle(), server.counts()
    hits, evictions = found["cached_tokens_total"], found["cache_evictions_total"]
    print(
        f"{dict(told)}; {hits} tokens taken over, {evictions} texts dropped; places left {left}"
    )
    if {*told} != {"right"} or not hits or not evictions:
        server.process.terminate()
        raise SystemExit("FAILED")


def ends(server):
    """Kill and restart, and SIGTERM under load. Gives another server."""
    with server.others() as killed:
        time.sleep(1)
        server.process.send_signal(signal.SIGKILL)
        server.process.wait()
    again = Server(server.options, server.wanted, server.schema, server.port)
    print(
        f"killed: {dict(killed)}; restarted: {Counter(map(again.ask, again.wanted))}",
        flush=True,
    )
    with again.others(8) as terminated:
        time.sleep(1)
        again.process.send_signal(signal.SIGTERM)
        began, code = time.perf_counter(), again.process.wait()
    seconds = time.perf_counter() - began
    print(
        f"SIGTERM: {dict(terminated)}; exit code {code} after {seconds:.1f} s",
        flush=True,
    )
    return Server(server.options, server.wanted, server.schema)


def load(server, clients, seconds):
    """Requests a second, times and memory with clients in a closed loop."""
    sources, took, wrong = [*server.wanted], list[float](), Counter[str]()
    process = psutil.Process(server.process.pid)
    before, used = process.memory_info().rss, sum(process.cpu_times()[:2])
    until = time.perf_counter() + seconds

    def work(number):
        draw = random.Random(number)
        while (began := time.perf_counter()) < until or len(took) < 2:
            wrong[server.ask(draw.choice(sources))] += 1
            took.append(time.perf_counter() - began)

    server.together(clients, work)
    p50, p95, p99 = (statistics.quantiles(took, n=100)[at - 1] for at in (50, 95, 99))
    used = sum(process.cpu_times()[:2]) - used
    print(
        f"{clients} clients: {len(took) / seconds:.1f} requests/s, p50 {p50:.2f} p95 {p95:.2f} p99 {p99:.2f} s, {dict(wrong)}, "
        f"{len(took) / used:.1f} requests a second of a processor, memory {before / 1e6:.0f} to {process.memory_info().rss / 1e6:.0f} MB",
        flush=True,
    )


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", required=True)
    parser.add_argument("--schema")
    parser.add_argument("--cases", type=int, default=1000)
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--clients", default="1,4,16")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--shared", type=int, default=0)
    parser.add_argument("--cache-mb", type=int, default=512)
    parser.add_argument("--routes", type=int, default=0)
    parser.add_argument("--beside")
    parser.add_argument("--body")
    given, options = parser.parse_known_args()
    random.seed(given.seed)
    options = [option for option in options if option != "--"]
    if given.routes:
        all_routes(given, options)
        return
    server = beside(given) if given.beside else started(given, options)
    if given.shared:
        shared(server, given.cases)
    elif given.cases and not given.beside:
        faults(server, given.cases, random.Random(given.seed))
        server = ends(server)
    for clients in map(int, given.clients.split(",") if not given.shared else ()):
        load(server, clients, given.seconds)
    server.process.terminate()
    print(f"exit code {server.process.wait()}")


#: The most tokens of a text or an object of a request to all routes.
MOST_TOKENS = 24
#: Questions of all types, in the shapes of both APIs.
ASKED: list[dict[str, Any]] = [
    {"type": "predicate", "instructions": "Is it cheap?"},
    {
        "type": "choice",
        "instructions": "What is it?",
        "choices": [{"value": "a pub"}, {"value": "a restaurant"}, {"value": True}],
    },
    {
        "type": "score",
        "instructions": "How good is it?",
        "levels": [{"label": "bad"}, {"label": "good"}, {"label": "very good"}],
    },
    {"type": "pipedec_text", "instructions": "What is its name?"},
]
NAMED: dict[str, dict[str, Any]] = {
    "cheap": {"type": "noul", "instructions": "Is it cheap?"},
    "kind": {"type": "choice", "criteria": {"pub": "It has beer.", "café": ""}},
    "stars": {"type": "score", "criteria": ["bad", "good", "very good"]},
}


def bodies(schema):
    """Each route's path, what its answer is, and the body for a source."""

    def messages(source):
        return [{"role": "user", "content": source}]

    form = {"type": "json_schema", "json_schema": {"name": "x", "schema": schema}}
    flat = {"type": "json_schema", "name": "x", "schema": schema}
    tool = {"type": "function", "function": {"name": "f", "parameters": schema}}
    called = {"tools": [tool], "tool_choice": "required"}
    chat, texts, responses = "chat/completions", "completions", "responses"
    return [
        (texts, "text", lambda source: {"prompt": source}),
        (texts, "object", lambda source: {"prompt": source, "response_format": form}),
        (chat, "text", lambda source: {"messages": messages(source)}),
        (chat, "object", lambda source: {"messages": messages(source), **called}),
        (responses, "text", lambda source: {"input": source}),
        (
            responses,
            "object",
            lambda source: {"input": messages(source), "text": {"format": flat}},
        ),
        (
            "decisions",
            "decisions",
            lambda source: {"input": source, "questions": ASKED},
        ),
        (
            "systemone",
            "systemone",
            lambda source: {"state": source, "questions": NAMED},
        ),
    ]


def said(answer):
    """What a whole answer says, in any shape, or a part of a stream."""
    if "answers" in answer:
        return answer["answers"]
    if "choices" not in answer:
        if "output" in answer:
            return answer["output"][0]["content"][0]["text"]
        return answer.get("delta", "")
    for choice in answer["choices"]:
        told = choice.get("message") or choice.get("delta") or choice
        for call in told.get("tool_calls") or ():
            return call["function"]["arguments"]
        return told.get("text") or told.get("content") or ""
    return ""


def streamed(content):
    """The text of a stream."""
    lines = [line[6:] for line in content.splitlines() if line.startswith(b"data: ")]
    parts = [json.loads(line) for line in lines if line != b"[DONE]"]
    return "".join(said(part) for part in parts)


def ask_any(server, wanted, number):
    """Ask a route, damage a body, or leave; how it ended."""
    draw = random.Random(number)
    source = draw.choice([*server.wanted])
    path, kind, body_of = draw.choice(bodies(server.schema))
    body = {"model": "m", **body_of(source)}
    is_text = kind in ("text", "object")
    if is_text:
        limit = "max_output_tokens" if path == "responses" else "max_tokens"
        body[limit] = MOST_TOKENS
    streams = is_text and draw.random() < 0.5
    content = json.dumps(body | ({"stream": True} if streams else {})).encode()
    if draw.random() < 0.1:
        head = f"POST /v1/{path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        with socket.create_connection(("127.0.0.1", server.port)) as made:
            size = f"Content-Length: {len(content)}\r\n\r\n"
            made.sendall(head.encode() + size.encode() + content)
            time.sleep(draw.random() / 2)
        return "left"
    if draw.random() < 0.1:
        status, answer, _ = server.send(mangled(content, draw), f"/v1/{path}")
        is_wrong = b"Traceback" in answer or status >= 500
        return f"WRONG {path} {status}: {answer[:200]!r}" if is_wrong else "damaged"
    status, answer, _ = server.send(content, f"/v1/{path}")
    if status != 200:
        return f"{status} {path}"
    told = streamed(answer) if streams else said(json.loads(answer))
    return "right" if told == wanted[kind][source] else f"WRONG {path} {kind} {streams}"


def all_routes(given, options):
    """Ask all routes. A SystemExit if an answer is wrong, or a place is lost."""
    sources = [record.source for record in read_records(given.data)]
    schema = json.loads(Path(given.schema).read_text(encoding="utf-8"))
    limited = [*options, "--max-tokens", str(MOST_TOKENS)]
    texts = generated(sources, [*limited, "--chat"])
    objects = generated(sources, [*limited, "--schema", given.schema])
    wanted = {"text": texts, "object": objects, "decisions": {}, "systemone": {}}
    plain = Server(options, texts, schema, program=("-c", PLAIN))
    for path, kind, body_of in bodies(schema)[-2:]:
        for source in sources:
            body = json.dumps({"model": "m", **body_of(source)}).encode()
            wanted[kind][source] = said(json.loads(plain.send(body, f"/v1/{path}")[1]))
    plain.process.terminate()
    plain.process.wait()
    more = ["--cache-mb", str(given.cache_mb), "--queue", "64"]
    server = Server([*options, *more], texts, schema)
    with ThreadPoolExecutor(16) as clients:
        told = Counter(
            clients.map(
                lambda number: ask_any(server, wanted, number), range(given.routes)
            )
        )
    left = server.settle()
    print(f"{dict(told)}; places left {left}", flush=True)
    server.process.terminate()
    code = server.process.wait()
    print(f"exit code {code}")
    if code or left != (0, 0) or {*told} - {"right", "left", "damaged"}:
        raise SystemExit("FAILED")


def beside(given):
    sources = [record.source for record in read_records(given.data)]
    return Peer(
        given.beside, sources, json.loads(Path(given.body).read_text(encoding="utf-8"))
    )


def started(given, options):
    """A server of ours; the right texts are those of `pipedec generate`."""
    sources = [record.source for record in read_records(given.data)]
    if given.shared:
        sources = mixed(sources, given.shared, random.Random(given.seed))
    more = ["--schema", given.schema] if given.schema else []
    wanted = generated(sources, [*more, *options])
    schema = (
        json.loads(Path(given.schema).read_text(encoding="utf-8"))
        if given.schema
        else None
    )
    return Server([*options, "--cache-mb", str(given.cache_mb)], wanted, schema)


def generated(sources, options):
    """What `pipedec generate` writes of each source."""
    with TemporaryDirectory() as folder:
        data, out = Path(folder) / "docs.jsonl", Path(folder) / "out.jsonl"
        lines = [json.dumps({"source": source}) + "\n" for source in sources]
        data.write_text("".join(lines), encoding="utf-8")
        command = [sys.executable, "-c", PLAIN, "generate", str(data)]
        subprocess.run([*command, "--out", str(out), *options], check=True)
        predicted = out.read_text(encoding="utf-8").splitlines()
    texts = [json.loads(line)["prediction"] for line in predicted]
    return dict(zip(sources, texts, strict=True))


if __name__ == "__main__":
    main()
