"""Tools: a request that leaves no choice of a function is answered with its arguments."""

from collections.abc import Sequence
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta, Struct

from pipedec_cli.serve.body import RefusalError


class Function(Struct, forbid_unknown_fields=True):
    """A function, whose parameters are a JSON Schema."""

    name: Annotated[str, Meta(pattern=r"^[\w-]{1,64}$")]
    description: str | None = None  # no model reads it
    parameters: dict[str, Any] = {}
    strict: bool | None = None


class Tool(Struct, forbid_unknown_fields=True):
    """A function in OpenAI's shape."""

    type: Literal["function"]
    function: Function

    @property
    def schema(self) -> tuple[bytes, bool]:
        """The JSON Schema of the arguments, and whether it is strict."""
        function = self.function
        if not function.parameters:
            what = f"tools: the function {function.name!r} has no parameters; send their JSON Schema"
            raise RefusalError(400, what, "tools")
        return msgspec.json.encode(function.parameters), bool(function.strict)


def forced(tools: Sequence[Tool], choice: str | dict[str, Any]) -> Tool | None:
    """The tool that a model must call; None if it may call none. A `RefusalError` where the model would have to choose."""
    if choice == "none" or (not tools and choice == "auto"):
        return None
    if choice == "required" and len(tools) == 1:
        return tools[0]
    match choice:
        case {"type": "function", "function": {"name": str(name)}}:
            for tool in tools:
                if tool.function.name == name:
                    return tool
            what = f"tool_choice: there is no function {name[:64]!r} in tools"
            raise RefusalError(400, f"{what}; send it, or name another", "tool_choice")
    what = "tool_choice: no model here chooses a tool; name a function of tools, or send required with one tool"
    raise RefusalError(400, what, "tool_choice")
