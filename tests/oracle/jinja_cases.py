"""Templates that were thought of one by one: each edge of the language that chat templates and tasks come near."""

VARIABLES = {
    "s": "hello", "e": "", "name": "Ann", "uni": "héllo wörld ß İ 日本", "n": 3, "x": 0.25, "big": 1e16, "neg": -7, "t": True, "o": None,
    "l": [3, 1, 2], "texts": ["b", "A", "é", ""], "d": {"text": "T", "list": [1, "2"], "inner": {"k": None}, "items": 5, "0": "zero"},
    "m": {"role": "user", "content": "Hi\n  there "},
    "ms": [{"role": "system", "content": " You "}, {"role": "user", "content": "Hi", "x": 1}, {"role": "assistant", "content": None}],
}

EXPRESSIONS = r"""
1 + 2 * 3 ** 2 // 4 % 5
2 ** 3 ** 2
-2 ** 2
7 // -2
-7 % 3
7.5 // 2
-7.5 % 2
1 / 3
4 / 2
1e16
1e15
0.1 + 0.2
1e-5
1.0
100000000000000000000.0
3 * 'ab'
'ab' * -1
[1] * 3
'a' ~ 1 ~ none ~ true ~ 1.5
'a' ~ 1 + 2
1 ~ 2 + 3
[1, 'a', None, true, 1.5, "it's", 'q"', "both'\""]
('a',)
()
(1, 2)
{'a': 1, 2: [3], none: 'x'}
{'a': 1, 'a': 2}
'\x41\u00e9\n\t\\n\'\q\é'
'a' 'b' "c"
"\101"
[s, uni]
['\x00\x7f\xa0\u200b\ue000']
true and 0 or 'x'
not u
1 < 2 < 3
1 < 3 < 2
1 == 1.0
1 == true
'a' in 'abc'
'' in ''
'a' in ['a']
1 in {1: 2}
'x' not in d
none in [none]
1 in 'abc'
u in 'abc'
'x' in u
[1, 2] < [1, 3]
'a' < 'b'
1 < 'a'
none < 1
[1] == (1,)
l == [3, 1, 2]
{'a': 1} == {'a': 1.0}
s[0]
s[-1]
s[99]
s[1:3]
s[::-1]
s[::2]
uni[::-1]
uni[1]
uni[-2:]
uni|length
l[::-1]
l[5:]
l[-2:]
l['a']
d['text']
d.text
d.items
d.items()|list
d['items']
d.get('items')
d.get('nope')
d.get('nope', 7)
d.keys()|list
d.values()|list
d.0
d['0']
ms[0].role
ms[0]['role'].upper()
ms[-1].content
ms[1].x
ms[0].x
ms[0].x is defined
ms[0].x.y
u
u.x
u|length
u|default('q')
e|default('q')
e|default('q', true)
none|default('q')
o is none
o is not none
s is string
s is mapping
d is mapping
l is sequence
d is sequence
s is sequence
1 is number
true is number
true is integer
1 is integer
1.0 is float
true is boolean
u is defined
u is undefined
s is defined
s is iterable
1 is iterable
u is iterable
u is callable
range is callable
d.get is callable
3 is odd
3 is even
-3 is odd
9 is divisibleby 3
9 is divisibleby(2)
1 is eq 1
1 is equalto 2
1 is ne 2
1 is lt 2
1 is ge(1)
'a' is in ['a']
true is sameas true
1 is sameas true
'ABC' is upper
'abc1' is lower
'' is lower
'é' is lower
3 is not odd
s is defined and s is string
'a' if true
'a' if false
'a' if false else 'b'
1 if 0 else 2 if 0 else 3
s|upper
'ß'|upper
uni|upper
'ŉ'|capitalize
'ǆ'|title
uni|lower
uni|title
uni.title()
"they're bill's"|title
"they're bill's".title()
'a-b (c) d'|title
'hELLO wORLD'|capitalize
'éA'.capitalize()
'  a '|trim
'xxaxx'|trim('x')
'\u3000a\u2003'|trim
'\x1ca\x1f'.strip()
'xyax'.strip('xy')
'  a '.lstrip()
'  a '.rstrip()
'aéb'.strip('aé')
'a b  c'.split()
'a,b,,c'.split(',')
'a,b,,c'.split(',', 1)
'a,b,,c'.rsplit(',', 1)
'a b  c '.split(none, 1)
' a b  c '.rsplit(none, 1)
''.split()
''.split(',')
'aaa'.split('aa')
'aaa'.rsplit('aa')
'aaaa'.rsplit('aa', 1)
'a'.split('')
'a\nb\r\nc\x0bd\u2028e'.splitlines()
'a\nb\n'.splitlines(true)
'a\n\nb'|indent
'a\n\nb'|indent(2, true)
'a\n\nb'|indent(2, blank=true)
'a\nb'|indent('> ')
''|indent
'aXbXc'|replace('X', '-')
'aXbXc'|replace('X', '-', 1)
'abc'.replace('', '-')
'é日'.replace('', '-')
'abc'.replace('', '-', 2)
''.replace('', 'x')
'abc'.replace('b', '')
123|replace(2, 'x')
'abcabc'.find('c')
'éabc'.find('c')
'abcabc'.rfind('bc')
'abc'.find('x')
'abc'.index('x')
'aaaa'.count('aa')
'abc'.count('')
'abc'.startswith('ab')
'abc'.startswith(('x', 'ab'))
'abc'.endswith('bc')
'abc'.startswith(['a'])
'-'.join(['a', 'b'])
'-'.join('abc')
'-'.join([1])
''.join([])
'a-b-c'.partition('-')
'a-b-c'.rpartition('-')
'abc'.partition('x')
'abc'.rpartition('x')
'7'.zfill(3)
'-7'.zfill(4)
'a'.ljust(3) ~ '|'
'a'.rjust(3, 'é')
'abc'.removeprefix('ab')
'abc'.removesuffix('ab')
'12'.isdigit()
''.isdigit()
'aé'.isalpha()
'a1'.isalpha()
' \n'.isspace()
'Aǅ'.isupper()
'{} {}'.format(1, 'a')
'{0}{1}{0}'.format(1, 'a')
'{a}{{}}'.format(a=2)
'{}'.format()
'%s and %d'|format('a', 3)
'%s' % 'a'
'%s %s' % ('a', [1])
'%05d|%-5s|%5s|%+d' % (3, 'a', 'é', 4)
'%.2f %f %x %%' % (1.005, 2, 255)
'%.2s' % 'abc'
'%d' % 2.9
'%s' % none
'%s' % [1, 2]
'%s %s' % 'a'
'a' % 'b'
[1, 2]|join
[1, none, 'a']|join(', ')
ms|join(',', attribute='role')
ms|map(attribute='role')|join(',')
ms|map(attribute='x', default=0)|list
texts|map('upper')|list
texts|map('replace', 'b', 'c')|list
texts|map('nope')|list
ms|selectattr('role', 'equalto', 'user')|list
ms|selectattr('x')|list|length
ms|selectattr('x', 'defined')|list|length
ms|rejectattr('role', 'in', ['user', 'system'])|map(attribute='role')|list
ms|map(attribute='role')|first
[0, 1, '', 'a', none]|select|list
[0, 1, '', 'a', none]|reject|list
[1, 2, 3, 4]|select('odd')|list
[1, 2, 3, 4]|select('>', 2)|list
[1, 2, 3, 4]|reject('divisibleby', 2)|list
l|sort
l|sort(reverse=true)
texts|sort
texts|sort(case_sensitive=true)
['b', 'B', 'a', 'A']|sort
['b', 'B', 'a', 'A']|sort(reverse=true)
ms|sort(attribute='role')|map(attribute='role')|list
[{'a': 1, 'b': 2}, {'a': 1, 'b': 1}]|sort(attribute='a,b')
[1, 'a']|sort
['a', 'A', 'b']|unique|list
['a', 'A', 'b']|unique(true)|list
[1, 1.0, true]|unique|list
l|min
l|max
[]|max
['b', 'A']|min
['b', 'A']|min(case_sensitive=true)
l|sum
[]|sum
[0.1, 0.2]|sum
[{'a': 1}, {'a': 2}]|sum(attribute='a')
[[1], [2]]|sum(start=[])
l|first
[]|first
l|last
''|last
d|first
l|reverse|list
'abc'|reverse
d|reverse|list
d|items|list
u|items|list
d|dictsort
{'b': 1, 'A': 2}|dictsort
{'b': 1, 'A': 2}|dictsort(true)
{'b': 1, 'A': 2}|dictsort(by='value')
{'b': 1, 'A': 2}|dictsort(reverse=true)
[1, 2, 3, 4, 5]|batch(2)|list
[1, 2, 3, 4, 5]|batch(2, 'x')|list
'abc'|list
d|list
u|list
d|length
'42'|int
'42.9'|int
' 4_2 '|int
'x'|int
'x'|int(7)
none|int
2.9|int
-2.9|int
'1e3'|int
true|int
u|int
'inf'|int
'1.5'|float
'x'|float
'x'|float(2)
'nan'|float
'Infinity'|float
'1_0.5'|float
'0x10'|float
3|float
2.5|round
3.5|round
2.675|round(2)
1.25|round(1)
7|round
7|round(1)
-1.5|round
1.21|round(1, 'ceil')
1.29|round(1, 'floor')
7|round(0, 'ceil')
-3|abs
-3.5|abs
'a'|abs
none|string
1.0|string
'<a>'|e
'<a>'|escape ~ '<b>'
'<a>'|safe ~ '<b>'
'<a>'|safe + '<b>'
'<a>'|safe
'a'|safe ~ 'b'
('<'|safe ~ '>')|length
{'b': 1, 'a': [1, 2.0, none, true, 'é"\n<']}|tojson
{'b': 1, 'a': [1, {}, []]}|tojson(indent=2)
[1, 2]|tojson(indent=0)
[1]|tojson(indent=-1)
{}|tojson(indent=2)
'\x00\x1f\x7f\u2028'|tojson
'日😀'|tojson(ensure_ascii=true)
{'b': 1, 'a': 2}|tojson(sort_keys=true)
[1, {'a': 2}]|tojson(separators=(',', ':'))
{1: 2, none: 3, true: 4, 1.5: 5}|tojson
(1, 2)|tojson
u|tojson
range(3)|tojson
1e16|tojson
'nan'|float|tojson
d|tojson
ms|tojson
range(3)|list
range(5, 1, -2)|list
range(0)|list
range(5)[1]
range(3)|last
range(3)|length
2 in range(3)
range(1, 2, 0)
dict(a=1, b=2)
dict({'a': 1}, b=2)
dict()
namespace(a=1).a
namespace(a=1).b
namespace({'a': 1}, b=2).b
namespace(_a=1)
none
true
True ~ None ~ False ~ none
s.nope
s.nope()
none()
s()
1 / 0
1 // 0
1 % 0
0 ** -1
2 ** -1
2.0 ** 0.5
l.index(1)
l.index(9)
l.count(3)
l + [4]
l + (4,)
l - [1]
d.copy()
(1, 2) + (3,)
-none
-true
+true
-'a'
u + 1
u == u
u == none
u == nope
s ~ u
[u]
d[u]
d[[1]]
s.upper.x
(1).x
[1, 2][true]
s[1.5]
s['x']
1 is none
[] is iterable
''|default(1, true)|string
s|upper|lower|replace('l', 'L')|trim
(s)|upper
s | upper ~ '!' | lower
-1|abs
- 1|abs
1.5.x
[1,2,]
{'a': 1,}
d.inner.k is none
d.inner.z is defined
s is not defined or s == 'hello'
not s is defined
'a' not in s
not 'a' in s
(1 if u is defined else 2)
[1, 2] is sequence and 1 or 2
s in [] or 'x'
1 in [1] == true
'a' ~ ('b' if s else 'c') ~ 'd'
l|map('string')|join('+')
l|map('default', 1)|list
ms|map(attribute='content')|select('string')|map('trim')|list
ms|groupby
""".strip("\n").split("\n")

TEMPLATES = [
    "", "text", "text\n", "a\n\n", "{{ s }}\n", "a\r\nb\rc", "{# c #}", "a {# c #} b", "a {#- c -#} b", "{# c #}\nb", "{#+ c +#}\nb", "{{ '{{' }}",
    "  {% if true %}\n  a\n  {% endif %}\nb", "x  {% if true %}a{% endif %}  y", "  {%+ if true %}a{% endif +%}\nb", " \n {%- if true -%} \n a {%- endif -%} \n b",
    "{% if true %}\n\na{% endif %}", "\t{% if true %}a{% endif %}\t\n", "{{ s -}}  \n x", "x \n {{- s }}", "  {{ s }}", "{% set a = 1 %}\n  {% set b = 2 %}\n{{ a + b }}",
    "{% raw %}{{ x }} {% if %}{% endraw %}", "{%- raw -%}  a  {%- endraw -%}  b", "{% raw %}\na\n{% endraw %}\nb", "  {% raw %}a\n  {% endraw %}\nb", "{% raw %}{% endraw",
    "{% if s %}a{% elif n %}b{% else %}c{% endif %}", "{% if u %}a{% elif n %}b{% else %}c{% endif %}", "{% if u %}a{% elif e %}b{% else %}c{% endif %}",
    "{% if s, %}a{% endif %}", "{% if %}{% endif %}", "{% if s %}", "{% endif %}", "{% else %}", "{% nope %}", "{{ }}", "{{ s", "{{ s } }", "{% if s", "{# c", "{{ 'a }}", "{{ [1, 2 }}",
    "{% for i in l %}{{ i }}{% endfor %}", "{% for i in [] %}{{ i }}{% else %}none{% endfor %}", "{% for i in l %}{{ i }}{% else %}none{% endfor %}",
    "{% for i in l %}{{ loop.index }},{{ loop.index0 }},{{ loop.first }},{{ loop.last }},{{ loop.length }},{{ loop.revindex }},{{ loop.revindex0 }},{{ loop.depth }};{% endfor %}",
    "{% for i in l %}[{{ loop.previtem }},{{ loop.nextitem }}]{% endfor %}", "{% for i in l %}{{ loop.previtem is defined }}{{ loop.nextitem|default('x') }}{% endfor %}",
    "{% for i in l if i > 1 %}{{ i }}{{ loop.length }}{% else %}none{% endfor %}", "{% for i in l if i > 9 %}{{ i }}{% else %}none{% endfor %}",
    "{% for i in l %}{{ loop.cycle('a', 'b') }}{{ loop.changed(i // 2) }}{% endfor %}", "{% for i in l %}{% if i == 1 %}{% break %}{% endif %}{{ i }}{% endfor %}",
    "{% for i in l %}{% if i == 1 %}{% continue %}{% endif %}{{ i }}{% endfor %}", "{% for i in l %}{% break %}{% else %}e{% endfor %}", "{% for i in l %}{% continue %}{% else %}e{% endfor %}",
    "{% for i in l %}{% if i == 2 %}{% break %}{% endif %}{% else %}e{% endfor %}", "{% break %}", "{% for k, v in d.items() %}{{ k }}={{ v }};{% endfor %}", "{% for k in d %}{{ k }};{% endfor %}",
    "{% for a, b in [(1, 2), [3, 4], 'xy'] %}{{ a }}{{ b }}{% endfor %}", "{% for a, b in [1] %}{% endfor %}", "{% for (a, b), c in [((1, 2), 3)] %}{{ a }}{{ b }}{{ c }}{% endfor %}",
    "{% for a, b in [(1, 2, 3)] %}{% endfor %}", "{% for c in uni %}{{ c }}.{% endfor %}", "{% for i in u %}{{ i }}{% endfor %}", "{% for i in none %}{% endfor %}", "{% for i in 5 %}{% endfor %}",
    "{% for i in 1, 2 %}{{ i }}{% endfor %}", "{% for i in l %}{% for j in l %}{{ loop.index }}{{ i }}{{ j }}{% endfor %}{{ loop.index }}{% endfor %}", "{{ loop }}", "{{ loop.index }}",
    "{% for i in l %}{% set v = i %}{% endfor %}{{ v }}", "{% set v = 0 %}{% for i in l %}{% set v = v + i %}{{ v }}{% endfor %}{{ v }}",
    "{% set ns = namespace(v=0) %}{% for i in l %}{% set ns.v = ns.v + i %}{% endfor %}{{ ns.v }}", "{% set ns = namespace() %}{% set ns.a = 1 %}{{ ns.a }}{{ ns.b is defined }}",
    "{% set d.x = 1 %}", "{% set nope.x = 1 %}", "{% set ns = namespace() %}{% set ns._x = 1 %}", "{% set a, b = 1, 2 %}{{ a }}{{ b }}", "{% set a = 1, 2 %}{{ a }}", "{% set a, b = 1 %}",
    "{% set a %} x {{ s }} {% endset %}[{{ a }}]", "{% set a|trim|upper %} x {{ s }} {% endset %}[{{ a }}]", "{% set a %}{% set b = 1 %}{% endset %}{{ b is defined }}", "{% set true = 1 %}",
    "{% if true %}{% set v = 1 %}{% endif %}{{ v }}", "{% if false %}{% set s = 1 %}{% endif %}{{ s }}", "{% if false %}{% set s = 1 %}{% else %}{% set s = 2 %}{% endif %}{{ s }}",
    "{% for i in [1] %}{{ s }}{% endfor %}{% set s = 1 %}", "{% for i in [1] %}{% if false %}{% set s = 1 %}{% endif %}{{ s }}{% endfor %}", "{{ s }}{% set s = 1 %}{{ s }}",
    "{% for i in [1, 2] %}{{ s }}{% set s = i %}{{ s }}{% endfor %}{{ s }}", "{% for i in [1, 2] %}{% set s = i %}{{ s }}{% endfor %}{{ s }}", "{% set s = s ~ '!' %}{{ s }}",
    "{% for i in [1, 2] %}{% if i == 2 %}{{ s }}{% endif %}{% set s = i %}{% endfor %}", "{% macro f() %}{{ s }}{% endmacro %}{{ f() }}{% set s = 1 %}{{ f() }}",
    "{% for s in l %}{{ s }}{% endfor %}{{ s }}", "{% for l in l %}{{ l }}{% endfor %}{{ l }}", "{% if false %}{% elif true %}{% set s = 3 %}{% elif s %}{% endif %}{{ s }}",
    "{% macro f(a, b=2) %}[{{ a }}{{ b }}]{% endmacro %}{{ f(1) }}{{ f(1, 3) }}{{ f(b=4, a=5) }}{{ f() }}", "{% macro f(a) %}{% endmacro %}{{ f(1, 2) }}", "{% macro f(a) %}{% endmacro %}{{ f(z=1) }}",
    "{% macro f(a) %}{% endmacro %}{{ f(1, a=1) }}", "{% macro f(a, b=a) %}{{ b }}{% endmacro %}{{ f(7) }}", "{% macro f(a=s) %}{{ a }}{% endmacro %}{{ f() }}", "{% macro f(a=1, b) %}{% endmacro %}",
    "{% macro f(n) %}{{ n }}{% if n > 0 %}{{ f(n - 1) }}{% endif %}{% endmacro %}{{ f(3) }}", "{% macro f() %} a {% endmacro %}{{ f()|trim }}{{ f() is string }}", "{% macro f(a) %}{{ a is defined }}{% endmacro %}{{ f() }}",
    "{% macro f() %}{% set s = 1 %}{{ s }}{% endmacro %}{{ f() }}{{ s }}", "{% for i in l %}{% macro f() %}{{ i }}{% endmacro %}{{ f() }}{% endfor %}", "{% macro f() %}{{ g() }}{% endmacro %}{% macro g() %}g{% endmacro %}{{ f() }}",
    "{{ f() }}{% macro f() %}x{% endmacro %}", "{% if true %}{% macro f() %}x{% endmacro %}{% endif %}{{ f() }}", "{% macro f(x) %}<{{ x }}>{% endmacro %}{{ [1, 2]|map('string')|join(f(1)) }}",
    "{% generation %}a{{ s }}{% set v = 1 %}{% endgeneration %}{{ v is defined }}", "{{ raise_exception('no') }}", "{% if s != 'hello' %}{{ raise_exception('no') }}{% endif %}ok", "{{ strftime_now('%Y')|length }}",
    "{% set l2 = l|map('string') %}{{ l2|join }}", "{{ l.append(1) }}", "{% set _ = d.update({'a': 1}) %}", "{{ d.pop('text') }}", "{{ ''.__class__ }}", "{{ d.__class__ }}", "{{ s.format }}",
    "{%if s%}a{%endif%}", "{%-if s-%}a{%-endif-%}", "{{s}}{{-s-}}", "{{ s }}{# c #}{{ s }}", "{% for i in l -%}\n  {{ i }}\n{%- endfor %}", "{%\nif\ns\n%}a{%\nendif\n%}", "{{ 'a\nb' }}", "{{ {'a': {'b': 1}}.a.b }}",
    "{{ '}}' }}", "{{ '%}' }}{% set a = '%}' %}{{ a }}", "{{ {'a': 1}}}", "{{ {'a': {}} }}", "}}{%-", "{ {", "{", "{{", "{%", "{#", "a{", "{}", "%}", "#}", "{{ 1 }", "{{ s|upper|lower }}",
    "{% for m in ms %}{% if m.content is string %}{{ m.content|trim }}{% elif m.content is none %}-{% endif %}{{ '' if loop.last else ',' }}{% endfor %}",
    "{% set x = 1 %}{% set x = x + 1 %}{{ x }}", "{% set a = [] %}{% for i in l %}{% set a = a + [i] %}{% endfor %}{{ a }}", "{% set a = {'b': 1}  %}{{ a.b }}", "{% set a=1 %}{{a}}", "{% set a = b = 1 %}",
    "{{ s if s }}", "{{ (s) }}", "{{ s, n }}", "{{ s, }}", "{% set x = s if u else n %}{{ x }}", "{% for i in (l if t else []) %}{{ i }}{% endfor %}", "{% for i in l if t else [] %}{{ i }}{% endfor %}",
    "{{ é }}", "{{ 1_000 }}{{ 1e3 }}{{ 1.5e-3 }}{{ 0 }}{{ 00 }}", "{{ 1.e3 }}", "{{ 1..x }}", "{{ a b }}", "{{ * }}", "{{ a ! b }}", "{{ a; b }}", "{{ @ }}", "{{ s.1 }}", "{{ ms.0.role }}", "{{ s. }}", "{{ s | }}", "{{ s is }}",
    "{{ not }}", "{{ and }}", "{{ s is string is true }}", "{{ s is not string }}", "{{ not not s }}", "{{ f(a=1, 2) }}", "{{ dict(a=1, a=2) }}", "{{ s[1, 2] }}", "{{ (1, }}", "{{ s[] }}", "{{ [,] }}", "{{ {1} }}", "{{ {1:} }}",
    "{% for %}{% endfor %}", "{% for i l %}{% endfor %}", "{% for i in %}{% endfor %}", "{% for 1 in l %}{% endfor %}", "{% set 1 = 2 %}", "{% set %}", "{% set a %}", "{% macro %}{% endmacro %}", "{% macro f %}{% endmacro %}", "{% endfor %}",
]

CASES = ["{{ " + expression + " }}" for expression in EXPRESSIONS if "groupby" not in expression] + TEMPLATES
# These are refused by name below, though Jinja2 knows them.
CASES = [case for case in CASES if case not in (
    "{{ d.pop('text') }}", "{% set _ = d.update({'a': 1}) %}",
    "{{ l.append(1) }}", "{{ ''.__class__ }}", "{{ d.__class__ }}", "{{ s.format }}", "{{ é }}", "{{ loop }}", "{{ d.items }}", "{{ 1 is sameas true }}",
    "{{ ('<'|safe ~ '>')|length }}", "{{ 'a' if x }}", "{{ d[u] }}", "{{ s.upper.x }}", "{{ s[1, 2] }}", "{{ s[] }}", "{{ namespace(_a=1) }}")]

REFUSED = [
    ("{{ s|nope }}", "the filter 'nope' is not supported"), ("{{ l|random }}", "the filter 'random' is not supported"), ("{{ ms|groupby('role') }}", "'groupby' is not supported"),
    ("{% if false %}{{ s|nope }}{% endif %}", "'nope'"), ("{{ s is nope }}", "the test 'nope' is not supported"), ("{% include 'x' %}", "the tag 'include' is not supported"),
    ("{% extends 'x' %}", "'extends'"), ("{% block a %}{% endblock %}", "'block'"), ("{% call f() %}{% endcall %}", "'call'"), ("{% with a = 1 %}{% endwith %}", "'with'"),
    ("{% filter upper %}{% endfilter %}", "'filter'"), ("{% for i in l recursive %}{% endfor %}", "recursive loops are not supported"), ("{{ f(*l) }}", "*arguments are not supported"),
    ("{{ f(**d) }}", "**arguments are not supported"), ("{% macro f() %}{{ varargs }}{% endmacro %}", "'varargs' in a macro"), ("{{ lipsum() }}", "'lipsum'"), ("{{ cycler(1) }}", "'cycler'"),
    ("{{ l.append(1) }}", "the method append of a list is not supported"), ("{{ d.update({}) }}", "the method update of a dict"), ("{{ s.encode() }}", "the method encode of a str"),
    ("{{ ''.__class__ }}", "__class__"), ("{{ range(100001)|list }}", "more than 100000"), ("{{ range(3) }}", "range cannot be written as text"), ("{{ l|map('string') }}", "generator cannot be written as text"), ("{{ s.upper }}", "function cannot be written"),
    ("{{ 9223372036854775807 + 1 }}", "64 bits"), ("{{ 2 ** 64 }}", "64 bits"), ("{{ 99999999999999999999 }}", "64 bits"), ("{{ 'Σ'|lower }}", "sigma"), ("{{ '\\N{BULLET}' }}", "\\N{...}"),
    ("{% set g = l|map('string') %}{{ g|list }}{{ g|list }}", "read once"), ("line\n{{ 1 / 0 }}", "line 2: division by zero"), ("{{ u.x }}", "line 1: 'u' is undefined"),
    ("{{ raise_exception('My own words') }}", "My own words"), ("{% for i in range(99999) %}" + "{{ 1 + 1 }}" * 100 + "{% endfor %}", "too many steps"),
    ("{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}{% endfor %}", "lists get too long"), ("{{ s[] }}", "unexpected"),
    ("{% set ns = namespace(s='x') %}{% for i in range(99) %}{% set ns.s = ns.s ~ ns.s %}{% endfor %}", "longer than 64 MiB"),
    ("{% set ns = namespace(s=[1]) %}{% for i in range(99) %}{% set ns.s = ns.s + ns.s %}{% endfor %}", "lists get too long"),
    ("{% set ns = namespace(s=[1]) %}{% for i in range(999) %}{% set ns.s = [ns.s] %}{% endfor %}", "more than 100 deep"), ("{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}", "too deep"),
    ("{{ " + "(" * 5000 + "1" + ")" * 5000 + " }}", "too deep"), ("{{ 1" + " + 1" * 5000 + " }}", "too long"), ("{% if true %}" * 5000, "too deep"), ("{{ 'a' * 99999999999 }}", "longer than 64 MiB"),
    ("{{ [1] * 99999999999 }}", "too long"), ("{{ 'a'.ljust(99999999999) }}", "longer than 64 MiB"), ("{{ '%9999999d' % 1 }}", "above 1000"), ("{{ 1.5|round(999) }}", "precision"),
    ("{% set ns = namespace() %}{% set ns.a = ns %}{{ ns }}", "namespace cannot be written"), ("{{ not " + "not " * 5000 + "1 }}", "too deep"), ("{{ " + "-" * 5000 + "1 }}", "too deep"),
]
