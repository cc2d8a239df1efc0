"""OpenAI's Responses: instructions, and items in one list."""
