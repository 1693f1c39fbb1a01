"""The beta names that the service knows: those of the SDK's own list, and those the Agent SDK sends."""

from __future__ import annotations

import re
from typing import Final

BETAS: Final = frozenset(
    re.findall(
        r"[\w-]+",
        """
    advanced-tool-use-2025-11-20 advisor-tool-2026-03-01 afk-mode-2026-01-31 agent-memory-2026-07-22
    auto-mode-classifier-2026-07-16 cache-diagnosis-2026-04-07 cache-keepalive-2026-09-03 claude-code-20250219
    claude-code-side-query-2026-09-29 code-execution-2025-05-22 compact-2026-01-12 compact-2026-09-04
    computer-use-2024-10-22 computer-use-2025-01-24 computer-use-2025-11-24 context-1m-2025-08-07
    context-hint-2026-04-09 context-management-2025-06-27 dangerous-tool-use-2026-09-03
    dev-full-thinking-2025-05-14 effort-2025-11-24 environments-2025-11-01 extended-cache-ttl-2025-04-11
    fallback-credit-2026-06-01 fallback-credit-2026-07-01 fast-mode-2026-02-01 files-api-2025-04-14
    fine-grained-tool-streaming-2025-05-14 inline-tools-2026-09-15 interleaved-thinking-2025-05-14
    mcp-client-2025-04-04 mcp-client-2025-11-20 mcp-client-2026-09-15 mcp-servers-2025-12-04
    mcp-tunnels-2026-06-22 message-batches-2024-09-24 message-threads-2026-08-12
    mid-conversation-output-config-2026-07-01 mid-conversation-system-2026-04-07
    mid-conversation-system-clear-at-2026-08-21 mid-conversation-tool-changes-2026-07-01
    model-context-window-exceeded-2025-08-26 oauth-2025-04-20 output-128k-2025-02-19 output-300k-2026-03-24
    pdfs-2024-09-25 per-turn-control-2026-07-01 prompt-caching-2024-07-31 prompt-caching-evict-2026-05-12
    prompt-caching-scope-2026-01-05 redact-thinking-2026-02-12 request-tags-2026-08-21 resumption-2026-10-08
    server-side-fallback-2026-06-01 server-side-fallback-2026-07-01 skills-2025-10-02
    structured-outputs-2025-11-13 structured-outputs-2025-12-15 subagent-review-2026-11-17
    task-budgets-2026-03-13 telemetry-destinations-2026-08-11 thinking-binding-controls-2026-08-01
    thinking-display-updates-2026-08-18 thinking-resumption-2026-07-17 thinking-token-count-2026-05-13
    timing-2026-09-09 token-counting-2024-11-01 token-efficient-tools-2025-02-19 tool-provenance-2026-10-26
    tool-search-tool-2025-10-19 user-profiles-2026-03-24 user-profiles-2026-08-18 user-profiles-2026-09-04
    user-profiles-billing-2026-10-01 web-search-2025-03-05 web-search-results-only-2026-11-15
    """,
    )
)
