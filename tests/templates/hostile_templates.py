"""Templates that try to run for hours, fill the memory, reach into Python, or break the parser."""

from __future__ import annotations

from collections.abc import Mapping

from degarble.templates.program import Failure

LOOPS = "{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}"
TOWERS = "{% set x = ['a'] %}{% set y = ['a'] %}" + "{% set x = [x, x] %}{% set y = [y, y] %}" * 60
CLIMB = "{% set ns = namespace(x=('a', 'b')) %}{% for i in range(90000) %}"

COSTLY: Mapping[str, str] = {
    "nested loops": LOOPS,
    "loops that are filtered": "{% for i in range(99999) %}{% for x in range(99999) if false %}{% endfor %}{% endfor %}",
    "loops left at once": "{% for i in range(99999) %}{% for x in range(99999)|select %}{% break %}{% endfor %}{% endfor %}",
    "loops in a generation tag": "{% generation %}" + LOOPS + "{% endgeneration %}",
    "recursive loop": "{% for x in [1, 2] recursive %}{{ loop([1, 2]) }}{% endfor %}",
    "text times a number": "{{ 'a' * 10**9 }}",
    "number times a text": "{{ 10**9 * 'a' }}",
    "list times a number": "{{ [1] * 10**9 }}",
    "powers": "{{ 2 ** 2 ** 4000 ** 9 }}",
    "squares": "{% set ns = namespace(x=7) %}{% for i in range(99) %}{% set ns.x = ns.x * ns.x %}{% endfor %}{{ ns.x }}",
    "text doubled by ~": "{% set x = 'aaaaaaaa' %}" + "{% set x = x ~ x %}" * 80 + "{{ x }}",
    "text doubled by +": "{% set x = 'aaaaaaaa' %}" + "{% set x = x + x %}" * 80 + "{{ x }}",
    "text doubled by a block": "{% set x = 'aaaaaaaa' %}" + "{% set x %}{{ x }}{{ x }}{% endset %}" * 80 + "{{ x }}",
    "text doubled in a namespace": "{% set ns = namespace(x='aaaaaaaa') %}{% for i in range(60) %}"
    "{% set ns.x = ns.x ~ ns.x %}{% endfor %}{{ ns.x }}",
    "lists doubled and printed": TOWERS + "{{ x }}",
    "lists doubled and encoded": TOWERS + "{{ x | tojson }}",
    "lists doubled and compared": TOWERS + "{{ x == y }}",
    "lists doubled and searched": TOWERS + "{{ x in [y] }}",
    "tuples doubled and hashed": "{% set x = ('a', 'b') %}" + "{% set x = (x, x) %}" * 60 + "{{ {x: 1} }}",
    "tuples nested and hashed": CLIMB + "{% set ns.x = (ns.x, 1) %}{% endfor %}{{ {ns.x: 1}|length }}",
    "lists nested and printed": CLIMB + "{% set ns.x = [ns.x] %}{% endfor %}{{ ns.x }}",
    "namespace in itself": "{% set ns = namespace() %}{% set ns.x = ns %}{{ ns }}",
    "namespaces doubled": "{% set ns = namespace(a=1) %}" + "{% set ns = namespace(a=ns, b=ns) %}" * 60 + "{{ ns }}",
    "macro that calls itself": "{% macro a() %}{{ a() }}{% endmacro %}{{ a() }}",
    "macro that calls itself twice": "{% macro a(n) %}{% if n %}{{ a(n - 1) }}{{ a(n - 1) }}{% endif %}{% endmacro %}{{ a(60) }}",
    "macro of much text": "{% macro a() %}"
    + "x" * 100_000
    + "{% endmacro %}{% for i in range(99999) %}{{ a() }}{% endfor %}",
    "arguments doubled": "{% macro m(n) %}{% if n %}{{ m(n - 1, varargs, varargs) }}{% else %}{{ varargs }}{% endif %}"
    "{% endmacro %}{{ m(90, 1) }}",
    "callers of callers": "{% macro r() %}{% for i in range(99999) %}{{ caller() }}{% endfor %}{% endmacro %}"
    "{% call r() %}{% call r() %}x{% endcall %}{% endcall %}",
    "block that prints itself": "{% block a %}{{ self.a() }}{{ self.a() }}{% endblock %}",
    "block of much text": "{% block a %}"
    + "x" * 100_000
    + "{% endblock %}{% for i in range(99999) %}{{ self.a() }}{% endfor %}",
    "cycler": "{% set c = cycler(*range(9999)) %}{% for i in range(99999) %}{{ c.next() }}{% endfor %}",
    "center": "{{ 'a' | center(10**9) }}",
    "center method": "{{ 'a'.center(10**9) }}",
    "ljust": "{{ 'a'.ljust(width=10**9) }}",
    "zfill": "{{ 'a'.zfill(10**9) }}",
    "expandtabs": "{{ ('\\t' * 100000).expandtabs(9999) }}",
    "percent width": "{{ '%1000000000d' % 1 }}",
    "percent width by argument": "{{ '%*d' % (10**9, 1) }}",
    "format filter": "{{ '%1000000000d' | format(1) }}",
    "format method": "{{ '{:>1000000000}'.format(1) }}",
    "many fields": "{{ ('%(a)s' * 100000) % {'a': 'x' * 100000} }}",
    "many wide fields": "{{ ('{0:9999}' * 100000).format('x') }}",
    "replace filter": "{{ ('a' * 100000) | replace('a', 'b' * 100000) }}",
    "replace method": "{{ ('a' * 100000).replace('', 'b' * 100000) }}",
    "replace over a printed list": "{{ (['a'] * 10000) | replace('a', 'b' * 100000) }}",
    "strip of many": "{{ ('a' * 1000000).strip('b' * 900000 + 'a') }}",
    "trim of many": "{{ ('a' * 1000000) | trim('b' * 900000 + 'a') }}",
    "search backwards": "{{ ('a' * 1000000).rfind('a' * 500000 + 'b' + 'a' * 250000) }}",
    "split backwards": "{{ ('a' * 1000000).rsplit(sep='a' * 500000 + 'b' + 'a' * 250000) | length }}",
    "slow filters in a loop": "{% for i in range(9999) %}{% set x = ('http://a' * 500) | urlize %}{% endfor %}",
    "replace block": "{% filter replace('a', 'b' * 100000) %}" + "a" * 100_000 + "{% endfilter %}",
    "replace over a list": "{{ (['a' * 10000] * 10000) | map('replace', 'a', 'bb') | list | length }}",
    "join filter": "{{ range(99999) | join('a' * 100000) }}",
    "join method": "{{ ('a' * 100000).join(range(99999) | map('string') | list) }}",
    "split in a loop": "{% for i in range(99999) %}{% set x = ('a ' * 400000).split() %}{% endfor %}",
    "slices in a loop": "{% set x = 'a' * 1000000 %}{% for i in range(99999) %}{% set y = x[1:] %}{% endfor %}",
    "sort in a loop": "{% for i in range(99999) %}{% set x = range(99999) | sort %}{% endfor %}",
    "indent": "{{ ('\\n' * 100000) | indent(9999) }}",
    "indent by text": "{{ 'a' | indent('x' * 100000) }}",
    "tojson indent": "{{ range(9999) | list | tojson(indent=9999) }}",
    "round": "{{ 1.5 | round(10**9, 'ceil') }}",
    "batch": "{{ [1] | batch(10**9, 'x') | list | length }}",
    "slice": "{{ [1] | slice(10**9) | list | length }}",
    "sum of lists": "{{ ([[1] * 1000] * 1000) | sum(start=[]) | length }}",
    "long path of attributes": "{{ range(99999) | map(attribute='a' + '.a' * 50000) | list }}",
    "too many signs": "{{ a }}" * 40_000,
    "too long": "x" * 300_000,
}
"""Must end as too costly."""

UNSAFE: Mapping[str, str] = {
    "attribute": "{{ ().__class__ }}",
    "attribute chain": "{{ ().__class__.__base__.__subclasses__() }}",
    "attr filter": "{{ () | attr('__class__') }}",
    "name put together": "{{ () | attr('__cl' ~ 'ass__') }}",
    "item": "{{ ()['__class__'] }}",
    "map": "{{ [()] | map(attribute='__class__') | list }}",
    "format field": "{{ '{0.__class__}'.format(1) }}",
    "function": "{{ raise_exception.__globals__ }}",
    "offered function": "{{ lipsum.__globals__ }}",
    "offered class": "{{ cycler.__init__.__globals__ }}",
}

OTHERS: Mapping[str, tuple[str, Failure]] = {
    "brackets": ("{{ " + "(" * 5000 + "1" + ")" * 5000 + " }}", Failure.SYNTAX),
    "lists in lists": ("{{ " + "[" * 150 + "1" + "]" * 150 + " }}", Failure.SYNTAX),
    "ifs": ("{% if 1 %}" * 200 + "{% endif %}" * 200, Failure.SYNTAX),
    "fors": ("{% for i in [1] %}" * 25 + "{% endfor %}" * 25, Failure.SYNTAX),
    "sums": ("{{ " + "1+" * 5000 + "1 }}", Failure.SYNTAX),
    "attributes": ("{{ a" + ".b" * 5000 + " }}", Failure.SYNTAX),
    "filters": ("{{ a" + "|upper" * 5000 + " }}", Failure.SYNTAX),
    "negations": ("{{ " + "not " * 5000 + "a }}", Failure.SYNTAX),
    "open comment": ("{#" * 60_000, Failure.SYNTAX),
    "open raw": ("{% raw %}" * 20_000, Failure.SYNTAX),
    "braces": ("{" * 190_000, Failure.SYNTAX),
    "lines": ("\n" * 190_000 + "{% if x %}", Failure.SYNTAX),
    "spaces": ("{%-" + " " * 190_000 + "%}", Failure.SYNTAX),
    "unknown filter": ("{{ 'a' | nothing }}", Failure.SYNTAX),
    "large range": ("{{ range(10**9) | length }}", Failure.FAILED),
    "include": ("{% include 'x' %}", Failure.FAILED),
    "import": ("{% import 'x' as y %}", Failure.FAILED),
    "extends": ("{% extends 'x' %}", Failure.FAILED),
    "append": ("{% set x = [] %}{{ x.append(1) }}", Failure.FAILED),
    "long float power": ("{{ 10.0 ** 4000 }}", Failure.FAILED),
    "colons in a format": ("{{ ('{' ~ ':' * 1000000).format(1) }}", Failure.FAILED),
    "long date": ("{{ strftime_now('%999999Y' * 100000) | length }}", Failure.UNJUDGED),
    "nested width": ("{{ '{:{w}}'.format(1, w=10**9) }}", Failure.UNJUDGED),
    "nested width in text": ("{{ '{:{w}}'.format(1, w='999999999') }}", Failure.UNJUDGED),
    "width after a key": ("{{ '%(a)999999999d' % {'a': 1} }}", Failure.UNJUDGED),
    "width of bytes": ("{{ '%999999999d'.encode() % 1 }}", Failure.UNJUDGED),
    "translate": ("{{ 'aaa'.translate({97: 'b' * 100000}) }}", Failure.UNJUDGED),
    "bytes of a number": ("{{ (1).to_bytes(10**9, 'big') }}", Failure.UNJUDGED),
    "lipsum": ("{{ lipsum(n=100000) }}", Failure.UNJUDGED),
    "send": ("{% set g = [1] | map('string') %}{{ g.send(None) }}", Failure.UNJUDGED),
    "striptags": ("{{ ('<!--' * 100000) | striptags }}", Failure.UNJUDGED),
    "urlize": ("{{ ('http://a' * 100000) | urlize }}", Failure.UNJUDGED),
    "wordwrap": ("{{ ('a ' * 100000) | wordwrap(3) }}", Failure.UNJUDGED),
    "join of a generator": ("{{ range(9999) | map('string') | join('a' * 100000) }}", Failure.UNJUDGED),
    "sum of texts": ("{{ ['a', 'b'] | sum(start='') }}", Failure.UNJUDGED),
}
"""End with another failure."""
