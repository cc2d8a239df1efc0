"""What looks like a secret leaves the output of commands, and what does not stays."""

import pytest

from cardbox_cli.execution.worker.command_output import MAX_SECRET_LENGTH, PATTERNS, redact

HIDDEN = "hunter2-0123456789abcdef"


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("key sk-proj-0123456789abcdef refused", "key [redacted] refused"),
        ("sk-ant-api03-0123456789abcdef", "[redacted]"),
        ("Stripe sk_live_0123456789abcdef.", "Stripe [redacted]."),
        ("AKIAIOSFODNN7EXAMPLE", "[redacted]"),
        ("ghp_0123456789abcdefghij", "[redacted]"),
        ("AIzaSyA0123456789abcdefghijklmnopqrstuv", "[redacted]"),
        ("xoxb-0123456789-abc", "[redacted]"),
        ("hf_0123456789abcdef", "[redacted]"),
        ("eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0In0.abc_def-123", "[redacted]"),
        ("Authorization: Bearer abc.def-123456", "Authorization: Bearer [redacted]"),
        ("{'authorization': 'Basic dXNlcjpwYXNz='}", "{'authorization': '[redacted]'}"),
        ("curl -H 'bearer 0123456789abcdef'", "curl -H 'bearer [redacted]'"),
        (f"postgresql://ann:{HIDDEN}@db:5432/cards", "postgresql://ann:[redacted]@db:5432/cards"),
        (f"https://:{HIDDEN}@host/x and more", "https://:[redacted]@host/x and more"),
        (f"host=db password={HIDDEN} user=ann", "host=db password=[redacted] user=ann"),
        (f"password='{HIDDEN} b' user=ann", "password='[redacted]' user=ann"),
        (f"PGPASSWORD={HIDDEN}\nnext", "PGPASSWORD=[redacted]\nnext"),
        (f'{{"api_key": "{HIDDEN}", "model": "x"}}', '{"api_key": "[redacted]", "model": "x"}'),
        (f"OPENAI_API_KEY: {HIDDEN}", "OPENAI_API_KEY: [redacted]"),
        (f"?access_token={HIDDEN}&page=2", "?access_token=[redacted]&page=2"),
        (f"aws_secret_access_key = {HIDDEN}", "aws_secret_access_key = [redacted]"),
        (
            "-----BEGIN RSA PRIVATE KEY-----\nMIIE\nabc=\n-----END RSA PRIVATE KEY-----\nnext",
            "-----BEGIN RSA PRIVATE KEY-----[redacted]-----END RSA PRIVATE KEY-----\nnext",
        ),
        ("-----BEGIN PRIVATE KEY-----\nMIIE\nabc", "-----BEGIN PRIVATE KEY-----[redacted]"),
        ("MIIE\nabc=\n-----END PRIVATE KEY-----\nnext", "[redacted]-----END PRIVATE KEY-----\nnext"),
    ],
)
def test_secrets_are_redacted(text: str, shown: str) -> None:
    assert redact(text) == shown


@pytest.mark.parametrize(
    "text",
    [
        "password authentication failed for user ann",
        "the bearer of bad news, in basic English",
        "used 300 tokens of 4096; max_tokens=256",
        "https://example.com:8080/path?x=1",
        "ask-something, risk-management-0123456789",
        'Traceback (most recent call last):\n  File "x.py", line 3',
        "git@github.com:owner/name.git",
    ],
)
def test_other_text_is_unchanged(text: str) -> None:
    assert redact(text) == text


def test_the_start_of_a_truncated_text_is_removed() -> None:
    assert redact("0123456789abcdef refused\nthe second line", cut=True) == "the second line"
    assert redact("x" * MAX_SECRET_LENGTH + " the rest", cut=True) == " the rest"


@pytest.mark.parametrize(
    "piece", ["a", "sk-", "eyJ", "://a:", "-----BEGIN PRIVATE KEY-----", "bearer ", "password= ", "\n", "A B"]
)
def test_large_texts_are_redacted_quickly(piece: str) -> None:
    # A pattern that goes back and forth would take minutes.
    assert redact(piece * (262_144 // len(piece)))
    assert len({pattern.what for pattern in PATTERNS}) == len(PATTERNS)
