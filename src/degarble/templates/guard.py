"""Puts the budget into a template: loops and macros pay for each turn, operators that jinja2 compiles for what they take.

jinja2 lets an environment intercept calls, arithmetic and filters. What it compiles to plain Python (comparisons, `~`,
slices, loops, the keys of a dict) is wrapped here in filters whose names no template can spell.
"""

from __future__ import annotations

from typing import Any, cast

from jinja2 import nodes
from jinja2.ext import Extension
from jinja2.parser import Parser
from jinja2.visitor import NodeTransformer

from degarble.templates.budget import CHARACTERS_OF_UNIT

WEIGH, TICK, CONCAT = "#weigh", "#tick", "#concat"


class GenerationTag(Extension):
    """`{% generation %}…{% endgeneration %}`, by which transformers marks the words of the assistant; it prints them."""

    tags = {"generation"}  # noqa: RUF012 - the base class declares it so

    def parse(self, parser: Parser) -> nodes.Node:
        """A scope of its own, as there."""
        line = next(parser.stream).lineno
        body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
        return nodes.Scope(body, lineno=line)


class Guard(NodeTransformer):
    """Rewrites a parsed template."""

    def guard(self, template: nodes.Template) -> nodes.Template:
        """The same template, paying."""
        return cast(nodes.Template, self.visit(template))

    def visit_For(self, node: nodes.For) -> nodes.Node:
        """Once for what it walks over, then for each turn."""
        tick = _tick(node.body, node.lineno)
        self.generic_visit(node)
        node.iter = _weighed(cast(nodes.Expr, node.iter))
        node.body.insert(0, tick)
        return node

    def visit_Macro(self, node: nodes.Macro) -> nodes.Node:
        """For each call."""
        return self._with_body(node)

    def visit_CallBlock(self, node: nodes.CallBlock) -> nodes.Node:
        """For each call of `caller`."""
        return self._with_body(node)

    def visit_Block(self, node: nodes.Block) -> nodes.Node:
        """For each `self.name()`."""
        return self._with_body(node)

    def _with_body(self, node: Any) -> nodes.Node:
        tick = _tick(node.body, node.lineno)
        self.generic_visit(node)
        node.body.insert(0, tick)
        return cast(nodes.Node, node)

    def visit_Concat(self, node: nodes.Concat) -> nodes.Node:
        """`~` joins without asking."""
        self.generic_visit(node)
        return _filter(node.nodes[0], CONCAT, node.nodes[1:])

    def visit_Compare(self, node: nodes.Compare) -> nodes.Node:
        """Equal lists are compared to the end."""
        self.generic_visit(node)
        node.expr = _weighed(node.expr)
        for operand in node.ops:
            operand.expr = _weighed(operand.expr)
        return node

    def visit_Getitem(self, node: nodes.Getitem) -> nodes.Node:
        """A slice copies."""
        self.generic_visit(node)
        if isinstance(node.arg, nodes.Slice):
            node.node = _weighed(node.node)
        return node

    def visit_Pair(self, node: nodes.Pair) -> nodes.Node:
        """A key is hashed to the bottom."""
        self.generic_visit(node)
        node.key = _weighed(node.key)
        return node


def _weighed(node: nodes.Expr) -> nodes.Expr:
    return node if isinstance(node, nodes.Const) else _filter(node, WEIGH, [])


def _filter(node: nodes.Expr, name: str, arguments: list[nodes.Expr]) -> nodes.Expr:
    return nodes.Filter(node, name, arguments, [], None, None, lineno=node.lineno)


def _tick(body: list[nodes.Node], line: int) -> nodes.Node:
    """A statement that pays for one turn: a step, and the text that the body may print as it stands."""
    length = sum(_text_length(node) for node in body)
    cost = nodes.Const(1 + length // CHARACTERS_OF_UNIT, lineno=line)
    return nodes.ExprStmt(_filter(cost, TICK, []), lineno=line)


def _text_length(node: nodes.Node) -> int:
    texts = [node, *node.find_all((nodes.TemplateData, nodes.Const))]
    found = (text.data if isinstance(text, nodes.TemplateData) else getattr(text, "value", "") for text in texts)
    return sum(len(text) for text in found if isinstance(text, str))
