"""A client for `cbx worker run --exec` that needs no model: it answers from the request that it reads.

    cbx worker run --exec 'python3 examples/client.py' --drain
    cbx worker run --exec "python3 examples/client.py --call lookup '{\"order\": 7}'" --drain
    cbx worker run --serve 'python3 examples/client.py --serve' --drain

It prints the answer as OpenAI spells a response. With --call it first asks for that tool, and then tells what
the tool said. With --serve it stays, and answers line by line. A client for a real model does the same with a
request over the network.
"""

import argparse
import json
import sys


def main() -> None:
    """Answer the request on standard input, or with --serve one after the other."""
    options = argparse.ArgumentParser()
    options.add_argument("--call", nargs=2, metavar=("TOOL", "ARGUMENTS"), help="ask for this tool first")
    options.add_argument("--serve", action="store_true", help="stay, for `cbx worker run --serve`")
    given = options.parse_args()
    if given.serve:
        serve(given.call)
    else:
        print(json.dumps(completion(json.load(sys.stdin), given.call)))


def serve(call: list | None) -> None:
    """Answer requests, a line each, until there are no more."""
    print(json.dumps({"ready": True}), flush=True)
    for line in sys.stdin:
        asked = json.loads(line)
        # Nobody waits any more, and this client is never at work on more than one request.
        if "cancel" not in asked:
            answer = {"id": asked["id"], "answer": completion(asked["request"], call)}
            print(json.dumps(answer), flush=True)


def completion(body: dict, call: list | None) -> dict:
    """The response to a chat-completions body."""
    messages = body["messages"]
    result = messages[-1]["content"] if messages[-1]["role"] == "tool" else None
    if call and result is None:
        message = asking(*call)
    else:
        message = {"role": "assistant", "content": answer(messages, result)}
    usage = {"prompt_tokens": len(json.dumps(body)) // 4, "completion_tokens": len(json.dumps(message)) // 4}
    return {"choices": [{"index": 0, "message": message}], "usage": usage}


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
