"""Small requests to each provider, made by hand, that hold what its messages can."""

from typing import Any

SCHEMA = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
PNG = "iVBORw0KGgo="

RESPONSES: dict[str, Any] = {
    "model": "gpt-5-mini",
    "instructions": "Be brief.",
    "input": [
        {"role": "developer", "content": "Answer in French."},
        {"role": "user", "content": [
            {"type": "input_text", "text": "Where is this?"},
            {"type": "input_image", "image_url": f"data:image/png;base64,{PNG}", "detail": "low"},
        ]},
        {"type": "reasoning", "id": "rs_1", "summary": [{"type": "summary_text", "text": "Hm."}], "encrypted_content": "e"},
        {"type": "function_call", "id": "fc_1", "call_id": "c1", "name": "weather", "arguments": '{"city":  "Oslo"}'},
        {"type": "function_call", "call_id": "c2", "name": "weather", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "c1", "output": "Rain."},
        {"type": "function_call_output", "call_id": "c2", "output": [{"type": "input_text", "text": "Sun."}]},
        {"type": "custom_tool_call", "call_id": "c3", "name": "shell", "input": "ls"},
        {"type": "custom_tool_call_output", "call_id": "c3", "output": "a"},
        {"type": "web_search_call", "id": "ws_1", "status": "completed", "action": {"type": "search", "query": "Oslo"}},
        {"type": "message", "id": "msg_1", "role": "assistant", "status": "completed", "content": [
            {"type": "output_text", "text": "In Oslo.", "annotations": []}
        ]},
        {"role": "assistant", "content": "Anything else?"},
        {"role": "user", "content": "No."},
    ],
    "tools": [
        {"type": "function", "name": "weather", "description": "The weather.", "parameters": SCHEMA, "strict": False},
        {"type": "function", "name": "late", "parameters": SCHEMA, "strict": False, "defer_loading": True},
        {"type": "custom", "name": "shell"},
        {"type": "web_search"},
    ],
    "tool_choice": {"type": "function", "name": "weather"},
    "reasoning": {"effort": "low", "summary": "auto"},
    "text": {"format": {"type": "json_schema", "name": "s", "schema": SCHEMA}, "verbosity": "low"},
    "max_output_tokens": 900,
    "include": ["reasoning.encrypted_content"],
}  # fmt: skip

GEMINI: dict[str, Any] = {
    "systemInstruction": {"parts": [{"text": "Be brief."}]},
    "contents": [
        {"role": "user", "parts": [
            {"text": "Where is this?"},
            {"inlineData": {"mimeType": "image/png", "data": PNG}},
            {"fileData": {"mimeType": "application/pdf", "fileUri": "https://h/f"}},
        ]},
        {"role": "model", "parts": [
            {"text": "Hm.", "thought": True},
            {"text": "Let me look.", "thoughtSignature": "c2ln"},
            {"functionCall": {"name": "weather", "args": {"city": "Oslo"}}, "thoughtSignature": "c2ln"},
            {"function_call": {"id": "c2", "name": "weather", "args": {"n": 1.10}}},
            {"functionCall": {"name": "weather"}},
        ]},
        {"role": "user", "parts": [
            {"functionResponse": {"name": "weather", "response": {"output": "Rain."}}},
            {"function_response": {"id": "c2", "name": "weather", "response": {"error": "No."}}},
            {"functionResponse": {"name": "weather", "response": {"a": [1, 2]}}},
        ]},
        {"role": "model", "parts": [
            {"executableCode": {"language": "PYTHON", "code": "6 * 7"}},
            {"codeExecutionResult": {"outcome": "OUTCOME_OK", "output": "42"}},
            {"text": "In Oslo."},
        ]},
        {"parts": [{"text": "Thanks."}]},
    ],
    "tools": [
        {"functionDeclarations": [
            {"name": "weather", "description": "The weather.", "parameters": {"type": "OBJECT", "properties": {"city": {"type": "STRING"}}}},
            {"name": "late", "parametersJsonSchema": SCHEMA, "response": {"type": "STRING"}},
        ]},
        {"googleSearch": {}},
    ],
    "toolConfig": {"functionCallingConfig": {"mode": "ANY", "allowedFunctionNames": ["weather"]}},
    "generationConfig": {"temperature": 0.5, "topK": 3, "maxOutputTokens": 900, "responseModalities": ["TEXT"]},
}  # fmt: skip

BEDROCK: dict[str, Any] = {
    "system": [{"text": "Be brief."}, {"cachePoint": {"type": "default"}}],
    "messages": [
        {"role": "user", "content": [
            {"text": "Where is this?"},
            {"image": {"format": "png", "source": {"bytes": PNG}}},
            {"document": {"format": "pdf", "name": "a", "source": {"bytes": "AAAA"}}},
            {"guardContent": {"text": {"text": "Check this.", "qualifiers": ["query"]}}},
        ]},
        {"role": "assistant", "content": [
            {"reasoningContent": {"reasoningText": {"text": "Hm.", "signature": "c2ln"}}},
            {"text": "Let me look."},
            {"toolUse": {"toolUseId": "c1", "name": "weather", "input": {"city": "Oslo"}}},
            {"toolUse": {"toolUseId": "c2", "name": "weather", "input": {}}},
        ]},
        {"role": "user", "content": [
            {"toolResult": {"toolUseId": "c1", "content": [{"text": "Rain."}]}},
            {"toolResult": {"toolUseId": "c2", "content": [{"json": {"a": 1}}, {"text": "x"}], "status": "error"}},
            {"cachePoint": {"type": "default"}},
        ]},
        {"role": "assistant", "content": [{"text": "In Oslo."}]},
        {"role": "user", "content": [{"text": "Thanks."}]},
    ],
    "inferenceConfig": {"temperature": 0.5, "maxTokens": 900, "stopSequences": ["."]},
    "toolConfig": {
        "tools": [
            {"toolSpec": {"name": "weather", "description": "The weather.", "inputSchema": {"json": SCHEMA}}},
            {"cachePoint": {"type": "default"}},
        ],
        "toolChoice": {"any": {}},
    },
    "additionalModelRequestFields": {"top_k": 3},
}  # fmt: skip

OPENAI: dict[str, Any] = {
    "model": "gpt-4o",
    "messages": [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": [
            {"type": "text", "text": "Where is this?"},
            {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{PNG}"}},
            {"type": "file", "file": {"filename": "a.pdf", "file_data": "data:application/pdf;base64,AAAA"}},
        ]},
        {"role": "assistant", "content": None, "tool_calls": [
            {"id": "c1", "type": "function", "function": {"name": "weather", "arguments": '{"city": "Oslo"}'}}
        ]},
        {"role": "tool", "tool_call_id": "c1", "content": "Rain."},
        {"role": "assistant", "content": "In Oslo."},
        {"role": "user", "content": "Thanks."},
    ],
    "tools": [{"type": "function", "function": {"name": "weather", "parameters": SCHEMA}}],
    "tool_choice": "required",
    "temperature": 0.5,
    "stop": ["."],
    "response_format": {"type": "json_schema", "json_schema": {"name": "s", "schema": SCHEMA}},
}  # fmt: skip

ANTHROPIC: dict[str, Any] = {
    "model": "claude-sonnet-4-5",
    "max_tokens": 900,
    "system": [{"type": "text", "text": "Be brief.", "cache_control": {"type": "ephemeral"}}],
    "messages": [
        {"role": "user", "content": "Where is this?"},
        {"role": "assistant", "content": [
            {"type": "thinking", "thinking": "Hm.", "signature": "c2ln"},
            {"type": "tool_use", "id": "c1", "name": "weather", "input": {"city": "Oslo"}},
        ]},
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "c1", "content": "Rain.", "is_error": True}]},
        {"role": "assistant", "content": "In Oslo."},
        {"role": "user", "content": "Thanks."},
    ],
    "tools": [{"name": "weather", "input_schema": SCHEMA}, {"type": "web_search_20250305", "name": "web_search"}],
    "tool_choice": {"type": "tool", "name": "weather"},
    "stop_sequences": ["."],
}  # fmt: skip

# A request to each provider, by the name of its format.
REQUESTS = {
    "openai": OPENAI,
    "anthropic": ANTHROPIC,
    "openai-responses": RESPONSES,
    "gemini": GEMINI,
    "bedrock-converse": BEDROCK,
}
