"""Tools: a request that leaves no choice of a function is answered with its arguments."""

from collections.abc import Sequence
from typing import Annotated, Any, Literal

from msgspec import Meta, Struct

from pipedec_cli.serve.body import RefusalError


class Function(Struct, forbid_unknown_fields=True):
    """A function, whose parameters are a JSON Schema."""

    name: Annotated[str, Meta(pattern=r"^[\w-]{1,64}$")]
    description: str | None = None  # no model reads it
    parameters: dict[str, Any] = {}
    strict: bool | None = None

    @property
    def format(self) -> dict[str, Any]:
        """The arguments as a `response_format`."""
        inner = {"schema": self.parameters, "strict": self.strict}
        return {"type": "json_schema", "json_schema": inner}


class Tool(Struct, forbid_unknown_fields=True):
    """A function in OpenAI's shape."""

    type: Literal["function"]
    function: Function


def forced(tools: Sequence[Tool], choice: str | dict[str, Any]) -> Function | None:
    """The function that a model must call; None if it may call none. A `RefusalError` where the model would have to choose."""
    if choice == "none" or (not tools and choice == "auto"):
        return None
    if choice == "required" and len(tools) == 1:
        return tools[0].function
    match choice:
        case {"type": "function", "function": {"name": str(name)}}:
            for tool in tools:
                if tool.function.name == name:
                    return tool.function
            what = f"tool_choice: there is no function {name[:64]!r} in tools"
            raise RefusalError(400, f"{what}; send it, or name another", "tool_choice")
    what = "tool_choice: no model here chooses a tool; name a function of tools, or send required with one tool"
    raise RefusalError(400, what, "tool_choice")
