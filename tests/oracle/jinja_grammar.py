"""Random templates: mostly well-typed, so that most of them render, with slips, so that errors are compared too."""
from jinja_cases import VARIABLES

TEXTS = ["", "a", "A b", "héllo", "x<&'\"y", "  pad  ", "a,b,,c", "line\\nline", "ÄÖ ß", "日本", "%s", "12", "-3.5", "user"]
KEYS = [key for key in VARIABLES["d"]]


class Grammar:
    def __init__(self, rng):
        self.rng = rng

    def one(self, *choices):
        return self.rng.choice(choices)

    def text(self, depth):
        if depth <= 0 or self.rng.random() < 0.2:
            return self.one("s", "e", "name", "m.content", "m['role']", "d.text", "uni", "'" + self.one(*TEXTS).replace("'", "\\'") + "'")
        sub = lambda: self.text(depth - 1)
        return self.one(
            lambda: f"{sub()} ~ {self.any(depth - 1)}",
            lambda: f"({sub()} + {sub()})",
            lambda: f"({sub()})[{self.slice(depth)}]",
            lambda: f"({sub()})[{self.integer(0)}]",
            lambda: f"({sub()}).{self.one('strip', 'lstrip', 'rstrip')}({self.one('', repr('ax '), repr('é'), 'none')})",
            lambda: f"({sub()}).{self.one('upper', 'lower', 'title', 'capitalize')}()",
            lambda: f"({sub()})|{self.one('upper', 'lower', 'title', 'capitalize', 'trim', 'string', 'reverse', 'e', 'safe', 'indent', 'indent(2, true)', 'indent(width=1, blank=true)')}",
            lambda: f"({sub()})|replace({sub()}, {sub()})",
            lambda: f"({sub()}).replace({sub()}, {sub()}{self.one('', ', 1')})",
            lambda: f"({self.list(depth - 1)})|join({self.one('', sub())})",
            lambda: f"({sub()}).join({self.list(depth - 1)}|map('string'))",
            lambda: f"({self.any(depth - 1)})|tojson",
            lambda: f"({self.any(depth - 1)})|tojson(indent={self.one('2', '0', 'none', '1')})",
            lambda: f"({self.any(depth - 1)})|string",
            lambda: f"({sub()}) * {self.integer(0)}",
            lambda: f"({sub()} if {self.truth(depth - 1)} else {sub()})",
            lambda: f"({self.one('u', sub())})|default({sub()}{self.one('', ', true')})",
            lambda: f"'{self.one('%s', '%s-%d', '%5s|', '%-4s|', '%03d', '%.2f', '%%')}'|format({sub()}, {self.number(depth - 1)})",
            lambda: f"'{self.one('{}', '{0}{1}', '{a}', '{{}}')}'.format({sub()}, {self.number(depth - 1)}, a={sub()})",
            lambda: f"({sub()}).{self.one('removeprefix', 'removesuffix')}({sub()})",
            lambda: f"({sub()}).{self.one('zfill', 'ljust', 'rjust')}({self.integer(0)})",
            lambda: f"ns.{self.one('a', 'b')}",
            lambda: f"f({sub()}{self.one('', ', ' + self.any(depth - 1), ', y=' + self.any(depth - 1))})",
        )()

    def integer(self, depth):
        if depth <= 0:
            return self.one("0", "1", "2", "-1", "-2", "7", "n", "loop.index", "true")
        sub = lambda: self.integer(depth - 1)
        return self.one(
            lambda: f"({sub()} {self.one('+', '-', '*', '//', '%')} {sub()})",
            lambda: f"-{sub()}",
            lambda: f"({self.list(depth - 1)})|{self.one('length', 'count')}",
            lambda: f"({self.text(depth - 1)})|length",
            lambda: f"({self.any(depth - 1)})|int",
            lambda: f"({self.text(depth - 1)}).{self.one('find', 'count', 'rfind', 'index')}({self.text(depth - 1)})",
            lambda: f"{sub()} ** {self.one('0', '1', '2', '3')}",
            lambda: f"({sub()})|abs",
            lambda: sub(),
        )()

    def number(self, depth):
        if depth <= 0:
            return self.one("1.5", "0.1", "2e3", "x", "-0.5", self.integer(0))
        sub = lambda: self.number(depth - 1)
        return self.one(
            lambda: f"({sub()} {self.one('+', '-', '*', '/', '//', '%')} {sub()})",
            lambda: f"({sub()})|round({self.one('', '1', '2', repr('x'), '0, ' + repr('floor'), '1, ' + repr('ceil'))})",
            lambda: f"({self.any(depth - 1)})|float",
            lambda: f"({sub()})|{self.one('abs', 'float', 'int')}",
            lambda: self.integer(depth),
            lambda: f"([{sub()}, {sub()}, {sub()}])|{self.one('sum', 'min', 'max')}",
        )()

    def slice(self, depth):
        part = lambda: self.one("", "", self.integer(0))
        return self.one(f"{part()}:{part()}", f"{part()}:{part()}:{self.one('', '1', '2', '-1', '-2')}")

    def list(self, depth):
        if depth <= 0:
            return self.one("l", "texts", "ms", "[]", "[1, 2]", "('a', 'b')", "range(3)", "d", "d.list", "['b', 'A', 'c']")
        sub = lambda: self.list(depth - 1)
        return self.one(
            lambda: f"[{', '.join(self.any(depth - 1) for _ in range(self.rng.randrange(4)))}]",
            lambda: f"({', '.join(self.any(depth - 1) for _ in range(2))},)",
            lambda: f"({sub()})[{self.slice(depth)}]",
            lambda: f"({sub()})|list",
            lambda: f"({sub()})|map({self.one(repr('upper'), repr('string'), repr('length'), 'attribute=' + repr('role'), repr('default') + ', 1', 'attribute=' + repr('x') + ', default=' + repr('q'))})|list",
            lambda: f"({sub()})|{self.one('select', 'reject')}({self.one('', repr('string'), repr('none'), repr('equalto') + ', 1', repr('in') + ', [1, 2]', repr('odd'))})|list",
            lambda: f"ms|{self.one('selectattr', 'rejectattr')}('role', {self.one(repr('equalto') + ', ' + repr('user'), repr('defined'), repr('in') + ', [' + repr('system') + ']')})|list",
            lambda: f"({sub()})|reverse|list",
            lambda: f"({sub()})|{self.one('sort', 'sort(reverse=true)', 'unique|list', 'sort(case_sensitive=true)', 'batch(2)|list')}",
            lambda: f"ms|sort(attribute='role')",
            lambda: f"({sub()} + {sub()})",
            lambda: f"({self.text(depth - 1)}).{self.one('split', 'rsplit')}({self.one('', repr(','), repr(',') + ', 1', 'none, 1', 'maxsplit=1')})",
            lambda: f"({self.text(depth - 1)}).splitlines({self.one('', 'true')})",
            lambda: f"({self.text(depth - 1)})|list",
            lambda: f"d.{self.one('keys', 'values', 'items')}()|list",
            lambda: f"d|{self.one('dictsort', 'items|list', 'list', 'dictsort(reverse=true)')}",
            lambda: f"range({self.integer(0)}, {self.integer(0)})|list",
            lambda: f"({self.text(depth - 1)}).{self.one('partition', 'rpartition')}({self.text(depth - 1)})",
        )()

    def dict(self, depth):
        if depth <= 0:
            return self.one("d", "m", "ms[0]", "{}", "{'a': 1}", "d.inner")
        return self.one(
            lambda: "{" + ", ".join(f"{self.one(repr('a'), repr('b'), '1', 'none', '1.5')}: {self.any(depth - 1)}" for _ in range(3)) + "}",
            lambda: f"dict(a={self.any(depth - 1)}, b=2)",
            lambda: f"dict({self.dict(depth - 1)}, z=1)",
            lambda: f"({self.list(depth - 1)})[0]",
        )()

    def truth(self, depth):
        if depth <= 0:
            return self.one("true", "false", "none", "u", "s", "n", "l", "loop.first", "loop.last")
        sub = lambda: self.truth(depth - 1)
        test = self.one("defined", "undefined", "none", "string", "mapping", "iterable", "sequence", "number", "integer", "float", "boolean",
                        "true", "false", "odd", "even", "divisibleby 2", "divisibleby(3)", "equalto(1)", "eq 'a'", "ne 2", "lt(3)", "gt 1",
                        "in [1, 'a']", "sameas true", "lower", "upper", "callable", "ge 1", "le(2)", "escaped")
        return self.one(
            lambda: f"({sub()} {self.one('and', 'or')} {sub()})",
            lambda: f"not {sub()}",
            lambda: f"({self.any(depth - 1)}) is {self.one('', 'not ')}{test}",
            lambda: f"({self.any(depth - 1)} {self.one('==', '!=')} {self.any(depth - 1)})",
            lambda: f"({self.number(depth - 1)} {self.one('<', '<=', '>', '>=')} {self.number(depth - 1)})",
            lambda: f"({self.text(depth - 1)} {self.one('<', '>', 'in', 'not in', '>=')} {self.text(depth - 1)})",
            lambda: f"({self.any(depth - 1)} {self.one('in', 'not in')} {self.list(depth - 1)})",
            lambda: f"({self.text(depth - 1)} in {self.dict(depth - 1)})",
            lambda: f"({self.integer(0)} < {self.integer(0)} <= {self.integer(0)})",
            lambda: f"({self.text(depth - 1)}).{self.one('startswith', 'endswith')}({self.one(self.text(depth - 1), '(' + repr('a') + ', ' + repr('h') + ')')})",
            lambda: f"({self.text(depth - 1)}).{self.one('isdigit', 'isalpha', 'isspace', 'isupper', 'islower')}()",
        )()

    def any(self, depth):
        roll = self.rng.random()
        if roll < 0.03:
            return self.one("u", "u.x", "none.x", "u()", "1/0", "d.nothing", "nope|length", "s.nothing", "l[9]", "d[l]", "namespace")
        if roll < 0.35:
            return self.text(depth)
        if roll < 0.5:
            return self.integer(depth)
        if roll < 0.6:
            return self.number(depth)
        if roll < 0.75:
            return self.list(depth)
        if roll < 0.82:
            return self.dict(depth)
        if roll < 0.95:
            return self.truth(depth)
        return self.one(f"d.get({self.one(*map(repr, KEYS))}{self.one('', ', ' + self.text(0))})", f"d[{self.text(0)}]", f"({self.list(depth - 1)})|first",
                        f"({self.list(depth - 1)})|last", "none", "loop.previtem", "loop.nextitem", f"loop.cycle({self.text(0)}, {self.integer(0)})")

    def tag(self, inside, closes=False):
        return f"{{%{self.one('', '', '-', '+')} {inside} {self.one('', '', '-', '+')}%}}"

    def gap(self):
        return self.one("", "", " ", "\n", "  \n  ", "text", "text \n", "\n  text", "{# note #}", "{#- note -#}\n", "\t")

    def name(self):
        return self.one("v", "w", "s", "n", "x", "i", "q")

    def two_names(self):
        """Not the same: Python 3.11.2, Debian's, gives `x, x = 1, 2` the first value."""
        first, second = self.name(), self.name()
        return f"{first}, {second if second != first else 'w' if first == 'v' else 'v'}"

    def statement(self, depth):
        body = lambda: self.body(depth - 1)
        return self.one(
            lambda: self.gap(),
            lambda: f"{{{{{self.one(' ', '- ')}{self.any(self.rng.randrange(1, 4))}{self.one(' ', ' -')}}}}}",
            lambda: f"{{{{ {self.any(2)} }}}}",
            lambda: f"{{{{ {self.name()} }}}}",
            lambda: self.tag(f"set {self.name()} = {self.any(2)}"),
            lambda: self.tag(f"set {self.two_names()} = {self.any(1)}, {self.any(1)}"),
            lambda: self.tag(f"set ns.{self.one('a', 'b')} = {self.any(2)}"),
            lambda: self.tag(f"set {self.name()}{self.one('', '|trim', '|upper|trim')}") + body() + self.tag("endset"),
            lambda: self.tag(f"if {self.truth(2)}") + body() + self.one("", self.tag(f"elif {self.truth(2)}") + body()) +
            self.one("", self.tag("else") + body()) + self.tag("endif"),
            lambda: self.tag(f"for {self.one('i', 'i', 'i, q', 'm', 's')} in {self.list(2)}{self.one('', '', ' if ' + self.truth(1))}") + body() +
            self.one("", "{{ loop.index }}{{ loop.length }}{{ loop.revindex0 }}", self.tag(f"if {self.truth(1)}") + self.tag(self.one("break", "continue")) + self.tag("endif") + body()) +
            self.one("", self.tag("else") + body()) + self.tag("endfor"),
            lambda: self.tag("for k, v in d.items()") + "{{ k }}={{ v }}" + body() + self.tag("endfor"),
            lambda: self.tag(f"macro {self.one('f', 'g')}({self.one('x', 'x, y=1', 'x, y=s', 's=2')})") + body() + self.tag("endmacro"),
            lambda: self.tag("raw") + self.one("{{ x }}", "{% if %}", " text ") + self.tag("endraw"),
        )()

    def body(self, depth):
        if depth <= 0:
            return self.gap() + self.one("", "{{ i }}", "{{ v }}", "{{ s }}", "{{ loop.index }}", "{{ " + self.any(1) + " }}")
        return "".join(self.statement(depth) for _ in range(self.rng.randrange(1, 4)))

    def template(self):
        if self.rng.random() < 0.5:
            return "{{ " + self.any(self.rng.randrange(1, 5)) + " }}"
        head = "{% set ns = namespace(a=1, b='z') %}{% macro f(x, y=2) %}({{ x }}|{{ y }}){% endmacro %}"
        return self.one("", head) + self.body(self.rng.randrange(1, 4)) + self.one("", "\n")
