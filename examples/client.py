"""A client for `cbx worker run --exec` that needs no model: it answers from the request that it reads.

    cbx worker run --exec 'python3 examples/client.py' --drain
    cbx worker run --exec "python3 examples/client.py --call lookup '{\"order\": 7}'" --drain

It prints the answer as OpenAI spells a response. With --call it first asks for that tool, and then tells what
the tool said. A client for a real model does the same with a request over the network.
"""

import argparse
import json
import sys


def main() -> None:
    """Read a chat-completions body from standard input, print the completion."""
    options = argparse.ArgumentParser()
    options.add_argument("--call", nargs=2, metavar=("TOOL", "ARGUMENTS"), help="ask for this tool first")
    call = options.parse_args().call
    body = json.load(sys.stdin)
    messages = body["messages"]
    result = messages[-1]["content"] if messages[-1]["role"] == "tool" else None
    if call and result is None:
        message = asking(*call)
    else:
        message = {"role": "assistant", "content": answer(messages, result)}
    usage = {"prompt_tokens": len(json.dumps(body)) // 4, "completion_tokens": len(json.dumps(message)) // 4}
    print(json.dumps({"choices": [{"index": 0, "message": message}], "usage": usage}))


def asking(tool: str, arguments: str) -> dict:
    """The message that calls a tool."""
    function = {"name": tool, "arguments": arguments}
    return {
        "role": "assistant",
        "content": None,
        "tool_calls": [{"id": "call_0", "type": "function", "function": function}],
    }


def answer(messages: list, result: str | None) -> str:
    """What it has to say: the tool's result, or what it was asked to do."""
    if result is not None:
        return f"The tool says: {result}"
    asked = [message["content"] for message in messages if message["role"] == "user"]
    return f"I read {len(messages)} messages. The last request was: {asked[-1] if asked else '(none)'}"


main()
