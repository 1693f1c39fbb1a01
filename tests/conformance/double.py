"""The conformance suite's own test tools, as an upstream server: what is tested is how we relay them."""

from __future__ import annotations

import sys
from typing import Any, Final

import anyio
import uvicorn
from mcp.server.context import ServerRequestContext
from mcp.server.lowlevel import Server
from mcp_types import (
    AudioContent,
    CallToolRequestParams,
    CallToolResult,
    ContentBlock,
    EmbeddedResource,
    ImageContent,
    ListToolsResult,
    PaginatedRequestParams,
    TextContent,
    TextResourceContents,
    Tool,
    ToolAnnotations,
)

PNG: Final = (
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mP8z8DwHwAFBQIAX8jx0gAAAABJRU5ErkJggg=="
)
WAV: Final = "UklGRiQAAABXQVZFZm10IBAAAAABAAEAQB8AAEAfAAABAAgAZGF0YQAAAAA="
SCHEMA_2020: Final = {
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    "type": "object",
    "$defs": {
        "address": {
            "type": "object",
            "properties": {"street": {"type": "string"}, "city": {"type": "string"}},
        }
    },
    "properties": {"name": {"type": "string"}, "address": {"$ref": "#/$defs/address"}},
    "additionalProperties": False,
}


def embedded(uri: str, mime: str, text: str) -> EmbeddedResource:
    return EmbeddedResource(resource=TextResourceContents(uri=uri, mime_type=mime, text=text))


ANSWERS: Final[dict[str, list[ContentBlock]]] = {
    "test_simple_text": [TextContent(text="This is a simple text response for testing.")],
    "test_image_content": [ImageContent(data=PNG, mime_type="image/png")],
    "test_audio_content": [AudioContent(data=WAV, mime_type="audio/wav")],
    "test_embedded_resource": [
        embedded("test://embedded-resource", "text/plain", "This is an embedded resource content.")
    ],
    "test_multiple_content_types": [
        TextContent(text="Multiple content types test:"),
        ImageContent(data=PNG, mime_type="image/png"),
        embedded("test://mixed-content-resource", "application/json", '{"test":"data","value":123}'),
    ],
    "test_tool_with_progress": [TextContent(text="Done.")],
    "json_schema_2020_12_tool": [TextContent(text="Done.")],
}
FAILING: Final = "test_error_handling"

Context = ServerRequestContext[Any, Any]


async def list_tools(_ctx: Context, _params: PaginatedRequestParams | None) -> ListToolsResult:
    reads = ToolAnnotations(read_only_hint=True)
    schemas: dict[str, dict[str, Any]] = {name: {"type": "object"} for name in (*ANSWERS, FAILING)}
    schemas["json_schema_2020_12_tool"] = SCHEMA_2020
    return ListToolsResult(
        tools=[
            Tool(name=name, description=f"{name}, for the suite", input_schema=schema, annotations=reads)
            for name, schema in schemas.items()
        ]
    )


async def call_tool(ctx: Context, params: CallToolRequestParams) -> CallToolResult:
    if params.name == FAILING:
        text = TextContent(text="This tool intentionally returns an error for testing")
        return CallToolResult(content=[text], is_error=True)
    if params.name == "test_tool_with_progress":
        for progress in (0, 50, 100):
            await ctx.session.report_progress(progress, 100)
            await anyio.sleep(0.05)
    return CallToolResult(content=ANSWERS[params.name])


def main(port: int) -> None:
    server = Server("conformance-double", version="1", on_list_tools=list_tools, on_call_tool=call_tool)
    uvicorn.run(server.streamable_http_app(), host="127.0.0.1", port=port, log_level="critical")


if __name__ == "__main__":
    main(int(sys.argv[1]))
