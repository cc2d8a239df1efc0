"""The short pages of `cbx help TOPIC`. Imports no command, like the rest of the root's help."""

import click

from cardbox_cli.cli.common_options import common_options, list_options

FIXES = """\
Which fix?
  a failed turn, once more             cbx turn retry TURN
  an ended turn, to compare results    cbx turn replay TURN --exec CMD
  another way from one of its steps    cbx turn fork TURN --at STEP
  workers that missed a notification   cbx turn nudge TURN
  a worker that is gone or hangs       cbx turn reclaim TURN …
  a turn that must start over          cbx turn requeue TURN …
  a tool call without a result         cbx turn report TURN …
  wrong or incomplete boxes            cbx turn rebox TURN …
  a turn that is no longer wanted      cbx turn stop TURN
  a turn that cannot succeed           cbx turn fail TURN …
  an agent without a state row         cbx turn rebuild AGENT
  a dead inbox row                     cbx inbox retry INBOX
`cbx why TURN` finds the cause and prints the command."""

_TOPICS = """\
cbx help options      The options that every command takes
cbx help ids          How to name cards, boxes, turns and batches
cbx help output       Output formats
cbx help exit-codes   Exit codes
cbx help settings     Environment variables and the config file
cbx help recipes      Recipes, which decide what an agent sees
cbx help fixes        Which command fixes a stuck or failed turn"""

_IDS = """\
Name a card, box, turn or batch by
  - its full id,
  - a unique part of its id: 4 or more characters at its start or end,
  - the 8 characters that tables show, or the first 4 or more of them, or
  - @last: the newest object that your own commands created in this project.

For example:
  cbx card import chat.json
  cbx box show @last

An ambiguous id is an error (exit code 5) that lists the matches."""

_OUTPUT = """\
Data is printed to stdout, everything else to stderr. Choose a format with -o:
  table   columns for people (the default)
  wide    every column, and nothing cut
  json    one lossless document; times are RFC 3339 in UTC
  jsonl   one JSON value per line
  yaml    one YAML document
  csv     one row per item: plain numbers, RFC 3339 times, whole texts
  tsv     the same, separated by tabs
  id      only the id that the next command needs

With -o json, errors are JSON on stderr. For example:
  cbx turn list --end failed -o id | xargs -n1 cbx turn retry"""

_EXIT_CODES = """\
0    done
1    unexpected failure: a bug in cbx
2    malformed command line
3    not found
4    a value was refused, or an answer could not be written
5    conflict: the stored state is not as expected
6    a turn was not accepted, or a chat is busy
7    the database or a service is unavailable
8    a check found problems, or a turn did not succeed
124  --timeout elapsed
130  interrupted
141  the reader of a pipe closed it"""

_SETTINGS = """\
An option overrides an environment variable, which overrides the config file.
`cbx config` shows every setting, its value and its source. For example:
  export CBX_PROJECT=shop
  cbx config CBX_PROJECT

The most used variables:
  CBX_PROJECT        the project (default: default)
  CBX_DATABASE_URL   the database (default: an embedded server)
  CBX_OUTPUT         the output format (default: table)
  CBX_HOME           the folder of the embedded server and local state"""

_RECIPES = """\
A recipe is a YAML file that decides which messages an agent sees. `cbx pack`
applies it and writes a context box. --recipe and --handover are one option.

For example:
  cbx handover list                      the recipes that cbx finds
  cbx handover show delegate             its arguments
  cbx handover validate my-recipe.yaml   check a recipe of your own
  cbx pack --recipe delegate --arg profile_name=writer --arg instruction='Count'"""

TOPICS = {
    "topics": _TOPICS,
    "options": "",  # built from the options themselves
    "ids": _IDS,
    "output": _OUTPUT,
    "exit-codes": _EXIT_CODES,
    "settings": _SETTINGS,
    "recipes": _RECIPES,
    "fixes": FIXES,
}


def topic_page(name: str, context: click.Context) -> str:
    """Return the page of a topic, without a line break at its end."""
    if name != "options":
        return TOPICS[name]
    formatter = context.make_formatter()
    with formatter.section("Every command takes these options, before or after its name"):
        formatter.write_dl(_records(common_options(), context))
    with formatter.section("Lists also take"):
        formatter.write_dl(_records(list_options(), context))
    return formatter.getvalue().rstrip("\n")


def _records(options: list[click.Option], context: click.Context) -> list[tuple[str, str]]:
    return [record for option in options if (record := option.get_help_record(context)) is not None]
