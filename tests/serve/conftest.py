"""Tests that import the server and its client are left out where these are not installed; test_serve.py says so."""

from importlib.util import find_spec

NEEDED = ("openai", "pydantic", "starlette", "uvicorn")
collect_ignore = []
if not all(map(find_spec, NEEDED)):
    collect_ignore += ["test_body.py", "test_decisions.py"]
    collect_ignore += ["test_responses.py", "test_tools.py", "test_chat.py"]
