"""Templates that use what jinja2 has and chat templates need, made up here; transformers is the oracle for what they write."""

from __future__ import annotations

from collections.abc import Mapping

EACH = "{% for m in messages %}"
END = "{% endfor %}"

FEATURES: Mapping[str, str] = {
    "loop": EACH + "{{ loop.index0 }}{{ m.role }}:{{ m['content'] }}{% if not loop.last %};{% endif %}" + END,
    "loop controls": EACH + "{% if m.role == 'system' %}{% continue %}{% endif %}{{ m.role }}{% break %}" + END,
    "white space": "  {%- for m in messages -%}  \n  {{- m.content -}}  \n  {%- endfor %}\n  {% if true %}\n x\n {% endif %}\n\n",
    "macro": "{% macro say(m, end='|') %}<{{ m.role }}>{{ m.content }}{{ end }}{% endmacro %}"
    + EACH
    + "{{ say(m) }}{{ say(m, end='!') }}"
    + END,
    "call block": "{% macro box() %}[{{ caller() }}]{% endmacro %}{% call box() %}{{ messages[0].content }}{% endcall %}",
    "namespace": "{% set ns = namespace(n=0, last='') %}"
    + EACH
    + "{% set ns.n = ns.n + 1 %}{% set ns.last = m.content %}"
    + END
    + "{{ ns.n }} {{ ns.last }}",
    "set block": "{% set x %}{{ messages[0].content }}{% endset %}{{ x | upper }}",
    "filter block": "{% filter replace('e', 'E') %}{{ messages[0].content }}{% endfilter %}",
    "filters of lists": "{{ messages | length }}{{ messages | map(attribute='role') | join(',') }}"
    "{{ messages | selectattr('role', 'equalto', 'user') | list | length }}{{ [3, 1, 2] | sort | last }}"
    "{{ {'b': 1, 'a': 2} | dictsort }}{{ [1, 2, 3] | sum }}{{ [1, 1] | unique | list }}",
    "filters of texts": "{{ ' x ' | trim }}{{ none | default('d') }}{{ 'abc' | first }}{{ 'a\nb' | indent(2) }}"
    "{{ 'x' | center(9) }}{{ 2.5 | round(1) }}{{ '%s-%d' | format('a', 1) }}{{ 'abc' | replace('b', 'x') }}",
    "tojson": "{{ {'b': ['<é>', 1, none, true], 'a': 'x'} | tojson }}{{ [1, {'a': 2}] | tojson(indent=2) }}",
    "methods": "{{ 'a,b'.split(',') }}{{ '  x'.lstrip() }}{{ 'abc'.startswith('ab') }}{{ {'a': 1}.items() | list }}"
    "{{ {'a': 1}.get('b', 2) }}{{ '-'.join(['a', 'b']) }}{{ 'a{}{b}'.format(1, b=2) }}{{ 'aXa'.replace('X', '-') }}",
    "slices": "{{ messages[::-1] | map(attribute='role') | list }}{{ messages[1:] | length }}{{ 'abc'[0:2] }}{{ 'abc'[-1] }}",
    "operators": "{{ 7 // 2 }}{{ 7 % 3 }}{{ 2 ** 3 }}{{ 'a' ~ 1 ~ none }}{{ 'a' * 3 }}{{ [1] + [2] }}{{ 1 < 2 <= 2 }}"
    "{{ 'x' in 'xy' }}{{ -3 | abs }}{{ not true }}{{ 'y' if false else 'n' }}",
    "tests": "{{ messages is defined }}{{ nothing is undefined }}{{ none is none }}{{ 'a' is string }}{{ {} is mapping }}"
    "{{ [] is iterable }}{{ 3 is odd }}{{ 3 is divisibleby(3) }}{{ true is true }}{{ 1 is number }}{{ 'a' is in ['a'] }}",
    "undefined": "[{{ nothing }}][{{ messages[0].nothing }}]{% for x in nothing %}x{% endfor %}",
    "generation": EACH + "{% generation %}{{ m.content }}{% endgeneration %}" + END,
    "recursion": "{% for x in [[1, [2]], 3] recursive %}"
    "{% if x is iterable %}({{ loop(x) }}){% else %}{{ x }}{% endif %}{% endfor %}",
    "globals": "{{ dict(a=1) }}{% set c = cycler('a', 'b') %}{{ c.next() }}{{ c.next() }}"
    "{% set j = joiner(',') %}{{ j() }}{{ j() }}{{ range(3) | list }}{{ strftime_now('%d') | length }}",
    "with": "{% with a=1, b=2 %}{{ a + b }}{% endwith %}{% raw %}{{ x }}{% endraw %}",
    "parts": EACH + "{% if m.content is string %}{{ m.content }}{% else %}{{ m.content[0].text }}{% endif %}" + END,
    "tools": "{% if tools %}{% for t in tools %}{{ t | tojson }}{{ t.function.name }}{% endfor %}{% endif %}"
    "{{ add_generation_prompt }}",
}
