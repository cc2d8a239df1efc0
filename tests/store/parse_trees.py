"""What a server understood of a statement: its parse tree, in which every operator and cast is a function.

The server prints it where it is asked for by `debug_print_parse`. Nothing is executed. Which functions are not
immutable, the server's catalog says; what is wrong with that, `sql_rules.py`.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, LiteralString

import psycopg
from psycopg import errors

_TOKEN = re.compile(r"\\.|\{(?P<kind>\w+)|(?P<end>\})|:(?P<field>[a-zA-Z]\w*)(?:\s+(?P<value>[\w<>-]+))?")
_FUNCTIONS = ("funcid", "opfuncid", "aggfnoid", "winfnoid")
# Where an expression says of which type it is.
_TYPES = ("vartype", "funcresulttype", "opresulttype", "consttype", "paramtype", "resulttype", "casetype")
_TYPES += ("coalescetype", "aggtype", "element_typeid", "array_typeid", "minmaxtype", "refrestype", "typeId")


@dataclass
class Node:
    """A node: its kind, its plain fields, and the nodes under it, each with the field that it stands in."""

    kind: str
    fields: dict[str, str] = field(default_factory=dict)
    nodes: list[tuple[str, "Node"]] = field(default_factory=list)

    def all(self) -> Iterator["Node"]:
        """This node and all under it."""
        yield self
        for _, node in self.nodes:
            yield from node.all()


def read(text: str) -> Node:
    """The tree that a server printed."""
    path, standing_in = [Node("")], [""]
    for token in _TOKEN.finditer(text):
        if token["kind"]:
            node = Node(token["kind"])
            path[-1].nodes.append((standing_in[-1], node))
            path.append(node)
            standing_in.append("")
        elif token["end"]:
            path.pop()
            standing_in.pop()
        elif token["field"]:
            standing_in[-1] = token["field"]
            path[-1].fields[token["field"]] = token["value"]
    return path[0]


class Server:
    """Parses statements in a transaction that holds the temporary tables which `prepared` makes."""

    def __init__(self, connection: psycopg.Connection[Any], prepared: list[str] | None = None) -> None:
        self._connection = connection
        self._printed: list[str] = []
        connection.add_notice_handler(lambda notice: self._printed.append(notice.message_detail or ""))
        for statement in prepared or []:
            connection.execute(statement.encode())
        changing = _rows(
            connection, "SELECT oid, proname, pronargs, prorettype FROM pg_proc WHERE provolatile <> 'i'"
        )
        types = _rows(connection, "SELECT oid, typinput::oid, typoutput::oid, typcategory FROM pg_type")
        self._functions = {oid: name for oid, name, *_ in changing}
        self._inputs = {oid: self._functions.get(function) for oid, function, _, _ in types}
        self._outputs = {oid: self._functions.get(function) for oid, _, function, _ in types}
        self._times = {oid for oid, *_, category in types if category == "D"}
        self._clocks = {
            oid: name for oid, name, taken, answer in changing if taken == "0" and answer in self._times
        }
        connection.execute(
            "SET debug_print_parse = on; SET debug_pretty_print = off; SET client_min_messages = log"
        )

    def parse(self, statement: str) -> Node:
        """The tree of a statement whose parameters are written $1, $2, …"""
        self._printed.clear()
        with self._connection.transaction(force_rollback=True):
            answer = self._connection.pgconn.prepare(b"", statement.encode())
            if answer.error_field(psycopg.pq.DiagnosticField.SQLSTATE):
                raise errors.ProgrammingError(answer.error_message.decode())
            return read(self._printed[-1])

    def clocks(self, tree: Node, *, may_select: bool = False) -> set[str]:
        """The functions without arguments that a statement asks for the time.

        `may_select`: but what the outermost query selects.
        """
        selected = {id(node) for _, query in tree.nodes for node in _selected(query)} if may_select else set()
        nodes = [node for node in tree.all() if id(node) not in selected]
        values = {
            "current time"
            for node in nodes
            if node.kind == "SQLVALUEFUNCTION" and node.fields["type"] in self._times
        }
        return values | {
            self._clocks[oid] for node in nodes if (oid := node.fields.get("funcid")) in self._clocks
        }

    def mutable_functions(self, tree: Node) -> set[tuple[str, str]]:
        """Where what is not immutable stands in CASE, COALESCE, RETURNING, SET or DO UPDATE: (place, function)."""
        found = set()
        for place, expression in _places(tree):
            found |= {(place, function) for node in expression.all() for function in self._mutable(node)}
        return found

    def _mutable(self, node: Node) -> Iterator[str]:
        oids = (node.fields.get(name) for name in _FUNCTIONS)
        yield from (self._functions[oid] for oid in oids if oid in self._functions)
        if node.kind in ("SQLVALUEFUNCTION", "NEXTVALUEEXPR"):
            yield node.kind.lower()
        if node.kind == "COERCEVIAIO":
            under = (
                given.fields.get(name) for _, arg in node.nodes for given in arg.all() for name in _TYPES
            )
            source = next(filter(None, under), "")
            names = self._inputs.get(node.fields["resulttype"]), self._outputs.get(source)
            yield from filter(None, names)


def _rows(connection: psycopg.Connection[Any], query: LiteralString) -> list[tuple[str, ...]]:
    """Rows as texts: the trees have nothing else."""
    return [tuple(map(str, row)) for row in connection.execute(query)]


def _selected(query: Node) -> Iterator[Node]:
    """All that is under the columns of a query."""
    for name, column in query.nodes:
        if name == "targetList":
            yield from column.all()


def _places(tree: Node) -> Iterator[tuple[str, Node]]:
    """The expressions in which only immutable functions may stand, with the word that makes them so."""
    for node in tree.all():
        if node.kind in ("CASEEXPR", "COALESCEEXPR"):
            yield node.kind.removesuffix("EXPR"), node
        is_update = node.fields.get("commandType") == "2"
        for name, under in node.nodes:
            if name == "returningList":
                yield "RETURNING", under
            elif name == "onConflictSet":
                yield "DO UPDATE", under
            elif name == "targetList" and is_update:
                yield "SET", under
