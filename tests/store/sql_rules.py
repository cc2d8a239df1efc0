"""The rules by which cbx's statements run where tables are spread over shards by project.

Every named query of `store/sql` is checked, as Postgres's own parser reads it (pglast) and as a server understood
it (`parse_trees`). A statement **names its project at every level**: each table of a project, which is one with a
column `tenant_id` or `project_id` that is never null, is compared with `%(project_id)s` in that very SELECT,
subquery, CTE, UPDATE or DELETE that has it in FROM, or is joined there, on the project, to a table that is. An
INSERT writes `%(project_id)s`, or the project of such a table. A query that is of no project says why in a line of
its own, `-- across-projects: REASON`; it may neither lock nor write.

`RULES` has the rules in words. What today's queries break stands in `sql_rule_exceptions.toml`, and that list may
only shrink: a new query keeps to the rules, a mended one leaves the list.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from pglast import ast, parse_sql
from pglast.enums import A_Expr_Kind, BoolExprType, CTEMaterialize, JoinType, SetOperation

from tests.store.parse_trees import Server

RULES = {
    "project": "each table of a project is compared with %(project_id)s at the level that has it in FROM",
    "across": "what is `-- across-projects` neither locks nor writes, and does not name the project after all",
    "clock": "the time is a parameter, read once per transaction: by `Database.now`, or selected by the outermost query "
    "of a read that locks, when it has its locks",
    "immutable": "nothing that is not immutable stands in CASE, COALESCE, RETURNING, SET or DO UPDATE: JSON is made "
    "over a CTE, WITH x AS (UPDATE … RETURNING x.*) SELECT … FROM x",
    "qualified": "a table is named with its schema",
    "generic-plan": "no plan is forced to be generic",
    "recursive-claim": "what locks or writes has no recursive CTE",
    "lease-alone": "a lease is inserted by a statement of its own, in the transaction of the claim",
    "insert-source": "an INSERT whose condition reads tables selects from a table, too",
    "no-columns": "a subquery in FROM has a column",
    "temporary": "temporary tables are joined with others through a MATERIALIZED CTE",
    "searched-case": "what writes has no CASE of a value: CASE WHEN x = 'a', for shards lose the x of CASE x WHEN 'a'",
    "outer-function": "a subquery does not join a table with a function of an outer row: it asks `IN (SELECT …)`",
}

_WRITES = (ast.InsertStmt, ast.UpdateStmt, ast.DeleteStmt, ast.MergeStmt)
_LEVELS = (ast.SelectStmt, ast.UpdateStmt, ast.DeleteStmt)
_ACROSS = re.compile(r"^-- across-projects: \S", re.MULTILINE)
# A shifted clock, which breaks `immutable` wherever it stands: that is told once, as `clock`.
_SHIFTED_CLOCK = re.compile(
    r"\(\w+\(\) \+ coalesce\(nullif\(current_setting\('cbx\.clock_offset'[^:]*::interval\)"
)

Found = tuple[str, str]
Place = (
    tuple[str, str] | None
)  # the project column of a table in FROM, by its alias; PROJECT; or anything else
PROJECT = ("", "%(project_id)s")


@dataclass(frozen=True)
class Schema:
    """What the rules need to know of the database. Tables are named SCHEMA.TABLE where they have a schema."""

    projects: Mapping[str, str]  # each table of a project, and its column
    tables: frozenset[str]  # all, those of no project too
    temporary: frozenset[str]
    catalog: frozenset[str]


def numbered(text: str) -> tuple[str, list[str]]:
    """A query as the server takes it, $1 for %(name)s, and the names of its parameters in order."""
    names: list[str] = []

    def number(found: re.Match[str]) -> str:
        if found[1] not in names:
            names.append(found[1])
        return f"${names.index(found[1]) + 1}"

    return re.sub(r"%\((\w+)\)s", number, text).replace("%%", "%"), names


def broken_rules(text: str, schema: Schema, server: Server) -> set[Found]:
    """The rules that a query breaks, each with what breaks it."""
    sql, names = numbered(text)
    statement = Statement(text, parse_sql(sql)[0].stmt, names, schema)
    found = set(statement.broken())
    if statement.names(schema.tables):
        may_select = statement.only_locks
        found |= {("clock", name) for name in server.clocks(server.parse(sql), may_select=may_select)}
        timed, _ = numbered(_SHIFTED_CLOCK.sub("%(now)s::timestamptz", text))
        functions = server.mutable_functions(server.parse(timed))
        found |= {("immutable", f"{function} in {place}") for place, function in functions}
    return found


@dataclass(frozen=True)
class Statement:
    text: str
    tree: Any
    parameters: list[str]
    schema: Schema

    def broken(self) -> Iterator[Found]:
        yield from self._projects()
        yield from self._names()
        yield from self._claims()
        yield from self._cases()
        yield from self._subqueries()

    # --- what is in it

    @cached_property
    def nodes(self) -> list[Any]:
        return list(nodes_of(self.tree))

    def of(self, *kinds: type) -> list[Any]:
        return [node for node in self.nodes if isinstance(node, kinds)]

    @cached_property
    def tables(self) -> list[Any]:
        """Every table, CTE among them, wherever it is named; but not again in FOR UPDATE OF."""
        locked = {id(table) for clause in self.of(ast.LockingClause) for table in clause.lockedRels or ()}
        return [table for table in self.of(ast.RangeVar) if id(table) not in locked]

    def names(self, tables: frozenset[str]) -> bool:
        return any(name_of(table) in tables for table in self.tables)

    @cached_property
    def only_locks(self) -> bool:
        """Whether it locks, and writes nothing."""
        return bool(self.of(ast.LockingClause)) and not self.of(*_WRITES)

    @cached_property
    def ctes(self) -> dict[str, Any]:
        return {cte.ctename: cte for cte in self.of(ast.CommonTableExpr)}

    # --- the project

    def _projects(self) -> Iterator[Found]:
        bound = {id(table) for level in self.of(*_LEVELS) for table in self._bound(level).values()}
        bound |= {id(insert.relation) for insert in self.of(ast.InsertStmt) if self._inserts_project(insert)}
        tables = [table for table in self.tables if name_of(table) in self.schema.projects]
        unbound = [table for table in tables if id(table) not in bound]
        if not _ACROSS.search(self.text):
            yield from (("project", f"{name_of(table)} {alias_of(table)}") for table in unbound)
            return
        if not unbound:
            yield "across", "every table is of one project"
        written = [write.relation for write in self.of(*_WRITES) if write.relation in tables]
        for kind in [*self.of(ast.LockingClause), *written]:
            yield "across", type(kind).__name__

    def _bound(self, level: Any) -> dict[str, Any]:
        """The tables of a project that this level binds to it, by alias."""
        tables = {
            alias_of(table): table for table in sources(level) if name_of(table) in self.schema.projects
        }
        comparisons = [(left, right, tables.keys()) for left, right in self._equal(level.whereClause, tables)]
        for joined in from_clause(level):
            comparisons += self._joins(joined, tables)
        bound: set[str] = set()
        while newly := {
            one[0]
            for left, right, may in comparisons
            for one, other in ((left, right), (right, left))
            if one
            and other
            and one[0] in may
            and one[0] not in bound
            and (other == PROJECT or other[0] in bound)
        }:
            bound |= newly
        return {alias: tables[alias] for alias in bound}

    def _joins(self, item: Any, tables: Mapping[str, Any]) -> Iterator[tuple[Place, Place, Any]]:
        """What the conditions of joins compare, and the aliases whose rows they restrict."""
        if not isinstance(item, ast.JoinExpr):
            return
        yield from self._joins(item.larg, tables)
        yield from self._joins(item.rarg, tables)
        restricted = {
            JoinType.JOIN_INNER: [item.larg, item.rarg],
            JoinType.JOIN_LEFT: [item.rarg],
            JoinType.JOIN_RIGHT: [item.larg],
        }.get(item.jointype, [])
        may = {alias_of(table) for side in restricted for table in side_by_side(side)}
        yield from ((left, right, may) for left, right in self._equal(item.quals, tables))

    def _equal(self, condition: Any, tables: Mapping[str, Any]) -> Iterator[tuple[Place, Place]]:
        """The comparisons for equality that a condition joins by AND."""
        if isinstance(condition, ast.BoolExpr) and condition.boolop == BoolExprType.AND_EXPR:
            for part in condition.args:
                yield from self._equal(part, tables)
        elif getattr(condition, "kind", None) == A_Expr_Kind.AEXPR_OP and condition.name[-1].sval == "=":
            yield self._place(condition.lexpr, tables), self._place(condition.rexpr, tables)

    def _place(self, expression: Any, tables: Mapping[str, Any]) -> Place:
        if isinstance(expression, ast.TypeCast):
            return self._place(expression.arg, tables)
        if isinstance(expression, ast.ParamRef):
            return PROJECT if self.parameters[expression.number - 1] == "project_id" else None
        if not isinstance(expression, ast.ColumnRef) or isinstance(expression.fields[-1], ast.A_Star):
            return None
        *path, column = [part.sval for part in expression.fields]
        alias = path[-1] if path else next(iter(tables), "") if len(tables) == 1 else ""
        is_project = alias in tables and self.schema.projects[name_of(tables[alias])] == column
        return (alias, column) if is_project else None

    def _inserts_project(self, insert: Any) -> bool:
        columns = [column.name for column in insert.cols or ()]
        project = self.schema.projects.get(name_of(insert.relation))
        return project in columns and self._selects_project(insert.selectStmt, columns.index(project))

    def _selects_project(self, select: Any, place: int) -> bool:
        """Whether every row has the project there."""
        if select.op != SetOperation.SETOP_NONE:
            return all(self._selects_project(arm, place) for arm in (select.larg, select.rarg))
        bound = self._bound(select)
        rows = select.valuesLists or [[target.val for target in select.targetList]]
        found = [self._place(row[place], bound) for row in rows]
        return None not in found

    # --- names, plans and claims

    def _names(self) -> Iterator[Found]:
        known = self.ctes.keys() | self.schema.temporary | self.schema.catalog
        for table in self.tables:
            if name_of(table) not in known and not table.schemaname and table.relpersistence != "t":
                yield "qualified", name_of(table)
        if any(
            getattr(constant.val, "sval", "") == "force_generic_plan" for constant in self.of(ast.A_Const)
        ):
            yield "generic-plan", "force_generic_plan"

    def _claims(self) -> Iterator[Found]:
        writes = self.of(*_WRITES)
        if any(clause.recursive for clause in self.of(ast.WithClause)) and (
            writes or self.of(ast.LockingClause)
        ):
            yield "recursive-claim", ", ".join(self.ctes)
        leases = [write for write in self.of(ast.InsertStmt) if name_of(write.relation) == "cbx.leases"]
        if leases and (len(writes) > 1 or leases[0] is not self.tree):
            yield "lease-alone", "cbx.leases"

    def _cases(self) -> Iterator[Found]:
        for case in self.of(ast.CaseExpr) if self.of(*_WRITES) else []:
            if case.arg is not None:
                yield "searched-case", "CASE x WHEN"

    # --- subqueries

    def _subqueries(self) -> Iterator[Found]:
        for insert in self.of(ast.InsertStmt):
            source = insert.selectStmt
            if source and not source.fromClause and source.whereClause and self._reads(source.whereClause):
                yield "insert-source", name_of(insert.relation)
        for subquery in self.of(ast.RangeSubselect):
            select = subquery.subquery
            if select.op == SetOperation.SETOP_NONE and not select.targetList and not select.valuesLists:
                yield "no-columns", alias_of(subquery)
        for level in self.of(*_LEVELS):
            items = list(sources(level))
            if any(name_of(item) in self.schema.projects for item in items):
                yield from self._beside_tables(level, items)

    def _beside_tables(self, level: Any, items: list[Any]) -> Iterator[Found]:
        for item in items:
            if self._inlined(item) & self.schema.temporary:
                yield "temporary", alias_of(item)
            outer = {path[0] for path in columns_of(item)} - {alias_of(other) for other in items}
            if isinstance(item, ast.RangeFunction) and outer and level is not self.tree:
                yield "outer-function", alias_of(item)

    def _inlined(self, item: Any) -> set[str]:
        """The tables of a subquery that the planner may pull up to where it stands."""
        cte = self.ctes.get(name_of(item)) if isinstance(item, ast.RangeVar) else None
        kept = cte is not None and cte.ctematerialized == CTEMaterialize.CTEMaterializeAlways
        inside = cte.ctequery if cte else item.subquery if isinstance(item, ast.RangeSubselect) else None
        return (
            set() if kept else {name_of(node) for node in nodes_of(inside) if isinstance(node, ast.RangeVar)}
        )

    def _reads(self, expression: Any) -> bool:
        return any(name_of(node) in self.schema.tables for node in nodes_of(expression))


def nodes_of(value: Any) -> Iterator[Any]:
    """Every node of a tree, from the top."""
    if isinstance(value, ast.Node):
        yield value
        for name in value:
            yield from nodes_of(getattr(value, name))
    elif isinstance(value, tuple):
        for part in value:
            yield from nodes_of(part)


def name_of(item: Any) -> str:
    """The name of a table, with its schema if that is written; of anything else none."""
    if not isinstance(item, ast.RangeVar):
        return ""
    return f"{item.schemaname}.{item.relname}" if item.schemaname else item.relname


def alias_of(item: Any) -> str:
    """What the rest of its level calls a table, subquery or function in FROM."""
    return item.alias.aliasname if item.alias else getattr(item, "relname", "")


def columns_of(value: Any) -> Iterator[list[str]]:
    """The columns that an expression names with a table: each as [table, column]."""
    for node in nodes_of(value):
        if isinstance(node, ast.ColumnRef) and len(node.fields) > 1:
            yield [getattr(part, "sval", "*") for part in node.fields]


def from_clause(level: Any) -> list[Any]:
    """What FROM, or USING, of a level lists; joins are not taken apart."""
    return list(getattr(level, "fromClause", None) or getattr(level, "usingClause", None) or ())


def sources(level: Any) -> Iterator[Any]:
    """The tables, subqueries and functions of a level, what it changes among them."""
    if not isinstance(level, ast.SelectStmt):
        yield level.relation
    for item in from_clause(level):
        yield from side_by_side(item)


def side_by_side(item: Any) -> Iterator[Any]:
    """What a join joins."""
    if isinstance(item, ast.JoinExpr):
        yield from side_by_side(item.larg)
        yield from side_by_side(item.rarg)
    else:
        yield item
