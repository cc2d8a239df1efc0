"""OpenAI's chat completions. Cards are near to this format: the chat form is its messages."""
