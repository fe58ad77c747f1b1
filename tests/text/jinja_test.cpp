#include <doctest/doctest.h>
#include <fmt/format.h>

#include <string>

#include "support/gpus.h"
#include "weft/chat.h"

using namespace weft;
using test::error_of;

namespace {

const std::string kVariables =
    R"json({"s": "Hello World", "e": "", "u": "naïve ß 漢字 😀 Ünï", "n": 5, "z": 0, "huge": 18446744073709551615, "lower": -123456789012345678901234567890, "neg": -7, "f": 2.5, "big": 1e+20, "t": true, "fl": false, "no": null, "l": [3, 1, 2], "ls": ["b", "A", "c", "a"], "d": {"b": 1, "a": 2, "items": 9, "C": "x"}, 
"nested": {"a": {"b": [1, {"c": "deep"}]}}, 
"m": [{"role": "user", "n": 2, "x": "B"}, {"role": "assistant", "n": 1, "x": "a"}, {"role": "user", "n": 3, "x": "b"}], "q": "it's \"q\" \\ \n\t<&>", "sp": "  a b  c \n", "el": [], "ed": {}, 
"mix": [1, "a", null, 2.0, true, [1, 2], {"k": "v"}], "fs": [1.5, 2, 1e-07, 1.2345678901234568e+17, 1e+16, 0.1, 100.0, -0.0]})json";

std::string render(std::string_view source) {
  return ChatTemplate(source).render_text(
      {.messages = "[]", .variables = kVariables, .now = "2026-01-15T09:30:00"});
}

struct Row {
  std::string_view source, text;
};

// What Jinja2 3.1 makes of each, set up as transformers does.
const Row kRows[] = {
    {"{% for i in range(10) %}{% if i==3 %}{% continue %}{% endif %}{% if i==6 %}{% break %}{% endif "
     "%}{{i}}{% endfor %}",
     "01245"},
    {"{% macro f(a,b=2) %}{{a}}-{{b}}-{{varargs}}-{{kwargs}}{% endmacro "
     "%}{{f(1)}}{{f(1,2,3,x=4)}}{{f(b=1,a=5)}}",
     "1-2-()-{}1-2-(3,)-{'x': 4}5-1-()-{}"},
    {"{% macro f(a,b=a) %}{{a}}{{b}}{% endmacro %}{{f(1)}}{{f()}}", "11"},
    {"{% macro w(t) %}<{{t}}>{{ caller('x') }}</{{t}}>{% endmacro %}{% call(v) w('b') %}in {{v}}{% endcall "
     "%}",
     "<b>in x</b>"},
    {"{% macro w() %}{{ caller() if caller else 'none' }}{% endmacro %}{{ w() }}{% call w() %}body{% endcall "
     "%}",
     "nonebody"},
    {"{% set x = 1 %}{% for i in [1,2] %}{% set x = x + i %}{{x}}{% endfor %}{{x}}", "231"},
    {"{% set ns = namespace(x=1, l=[]) %}{% for i in [1,2] %}{% set ns.x = ns.x + i %}{% set ns.l = ns.l + "
     "[i] %}{% endfor %}{{ns.x}}{{ns.l}}{{ns.zz}}|{{ ns.zz is defined }}",
     "4[1, 2]|False"},
    {"{% set x %}a{{n}}b{% endset %}[{{x}}]{% set y | upper | trim %} abc {% endset %}[{{y}}]", "[a5b][ABC]"},
    {"{% filter upper %}abc{{s}}{% endfilter %}{% filter replace('a','b') | upper %}aa{% endfilter %}",
     "ABCHELLO WORLDBB"},
    {"{% with a=1, b=n %}{{a}}{{b}}{% endwith %}{{a}}", "15"},
    {"{% if n > 3 and n < 10 %}A{% elif n %}B{% else %}C{% endif %}", "A"},
    {"{{ 1 < n < 10 }} {{ 1 < n > 7 }} {{ n == 5 == true }}", "True False False"},
    {"{{ 'a' if n > 3 else 'b' }}{{ 'a' if n > 30 }}|{{ ('x' if fl else 'y') ~ 1 }}", "a|y1"},
    {"a\n  {% if true %}\n   b\n  {% endif %}\nc\n{{ n }}\nd", "a\n   b\nc\n5\nd"},
    {"a {%- if true -%} b {%- endif -%} c", "abc"},
    {"  {%+ if true %}x{% endif +%}\ny", "  x\ny"},
    {"{# comment #}\nx {#- c -#} y", "xy"},
    {"{% raw %}{{ x }} {% if %}{% endraw %}\nz", "{{ x }} {% if %}z"},
    {"x\n  {%- raw -%}  {{ a }}  {%- endraw -%}\n  y", "x{{ a }}y"},
    {"{% for k, v in d.items() %}{{k}}={{v}};{% endfor %}{% for k in d %}{{k}}{% endfor %}{% for k, v in "
     "d|dictsort %}{{k}}{{v}}{% endfor %}",
     "b=1;a=2;items=9;C=x;baitemsCa2b1Cxitems9"},
    {"{% for a, (b, c) in [(1,(2,3))] %}{{a}}{{b}}{{c}}{% endfor %}", "123"},
    {"{% for i in l recursive %}{{i}}{% if loop.depth < 3 %}({{ loop([9]) }}){% endif %}{% endfor %}",
     "3(9(9))1(9(9))2(9(9))"},
    {"{% for i in l if i > 1 "
     "%}{{loop.index}}:{{i}}:{{loop.revindex}}:{{loop.first}}:{{loop.last}}:{{loop.previtem}}:{{loop."
     "nextitem}};{% else %}E{% endfor %}",
     "1:3:2:True:False::2;2:2:1:False:True:3:;"},
    {"{% for i in [1,1,2] %}{{ loop.changed(i) }}{{ loop.cycle('a','b') }}{% endfor %}", "TrueaFalsebTruea"},
    {"{% set c = cycler('a','b') "
     "%}{{c.next()}}{{c.next()}}{{c.next()}}{{c.current}}{{c.reset()}}{{c.current}}",
     "ababNonea"},
    {"{% set j = joiner('|') %}{% for i in l %}{{j()}}{{i}}{% endfor %}", "3|1|2"},
    {"{{ undef ~ 'x' }}{{ undef|length }}{% for x in undef %}{% endfor %}", "x0"},
    {"{{ strftime_now('%d %b %Y %H:%M:%S %A %B %j %-d') }}", "15 Jan 2026 09:30:00 Thursday January 015 15"},
    {"{{ dict(a=1, b='x') }}{{ dict([('k',2)]) }}{{ dict(d, z=3) }}",
     "{'a': 1, 'b': 'x'}{'k': 2}{'b': 1, 'a': 2, 'items': 9, 'C': 'x', 'z': 3}"},
    {"{{ range(5)|list }}{{ range(2,8,3)|list }}{{ range(5,0,-2)|list }}{{ range(0)|list }}",
     "[0, 1, 2, 3, 4][2, 5][5, 3, 1][]"},
    {"{% if l.append %}y{% else %}n{% endif %}{{ l.append is defined }}", "nFalse"},
    {R"j({{ 'a' 'b' "c" }}{{ "\n\t\x41\u00e9\\\"'" }}{{ '\d' }})j", "abc\n\tAé\\\"'\\d"},
    {"{{ [1,2,3][1:] }}{{ (1,2)[0] }}{{ [1,[2,3]][1][0] }}{{ 'abc'[-1] }}{{ 'abc'[5] }}{{ 'abc'[1:2] }}",
     "[2, 3]12cb"},
    {"{{ {'a':1,'b':{'c':[1,2]}} }}{{ {} }}{{ {'a':1,} }}{{ [1,] }}{{ (1,) }}",
     "{'a': 1, 'b': {'c': [1, 2]}}{}{'a': 1}[1](1,)"},
    {"{{ 7 // 2 }} {{ -7 // 2 }} {{ 7 % 3 }} {{ -7 % 3 }} {{ 7 / 2 }} {{ 2 ** 10 }} {{ 2 ** -1 }} {{ 7.5 // "
     "2 }} {{ -7.5 % 2 }} {{ 2**3**2 }} {{ -2**2 }}",
     "3 -4 1 2 3.5 1024 0.5 3.0 0.5 64 4"},
    {"{{ 1e3 }} {{ 1.0 }} {{ 0x1F }} {{ 0b11 }} {{ 0o17 }} {{ 1_000 }} {{ 1.5e-7 }} {{ 1e22 }}",
     "1000.0 1.0 31 3 15 1000 1.5e-07 1e+22"},
    {"{{ m|map(attribute='role')|unique|join(',') }} {{ m|selectattr('role','equalto','user')|first }} {{ "
     "(m|selectattr('role','equalto','zz')|list)|length }}",
     "user,assistant {'role': 'user', 'n': 2, 'x': 'B'} 0"},
    {"{% set g = m|map(attribute='n') %}{{ g|list }}{{ g|list }}", "[2, 1, 3][]"},
    {"{% set a, b = 1, 2 %}{{a}}{{b}}{% set (c, e2) = (3, 4) %}{{c}}{{e2}}{% set q = 1, %}{{q}}", "1234(1,)"},
    {"{% for x in [1,2] %}{% for y in [3,4] %}{{ loop.index }}{% endfor %}{{ loop.index }}{% endfor %}",
     "121122"},
    {"{% macro outer() %}{% macro inner() %}I{% endmacro %}{{ inner() }}{% endmacro %}{{ outer() }}", "I"},
    {"{% macro m1(x) %}{% if x > 0 %}{{ x }}{{ m1(x-1) }}{% endif %}{% endmacro %}{{ m1(5) }}", "54321"},
    {"{% macro g() %}{{ gv }}{% endmacro %}{% set gv = 7 %}{{ g() }}", "7"},
    {"{% for i in [1] %}{% set lv = 5 %}{% endfor %}{{ lv }}|{% if true %}{% set iv = 6 %}{% endif %}{{ iv "
     "}}",
     "|6"},
    {"{{ s is string and s is not mapping }}{{ undef is not defined }}{{ not undef }}{{ n is not none }}",
     "TrueTrueTrueTrue"},
    {"{{ ('<b>'|safe) + '<i>' }}{{ '<i>' + ('<b>'|safe) }}{{ '<i>' ~ ('<b>'|safe) }}{{ ('<b>'|e) ~ '<' }}",
     "<b>&lt;i&gt;&lt;i&gt;<b><i><b>&lt;b&gt;<"},
    {"{{ q|tojson }}{{ u|tojson }}{{ fs|tojson }}{{ fs }}{{ mix|tojson }}{{ nested|tojson(indent=2) }}{{ "
     "[]|tojson(indent=2) }}{{ {}|tojson(indent=1) }}",
     "\"it's \\\"q\\\" \\\\ \\n\\t<&>\"\"naïve ß 漢字 😀 Ünï\"[1.5, 2, 1e-07, 1.2345678901234568e+17, 1e+16, "
     "0.1, 100.0, -0.0][1.5, 2, 1e-07, 1.2345678901234568e+17, 1e+16, 0.1, 100.0, -0.0][1, \"a\", null, 2.0, "
     "true, [1, 2], {\"k\": \"v\"}]{\n  \"a\": {\n    \"b\": [\n      1,\n      {\n        \"c\": \"deep\"\n "
     "     }\n    ]\n  }\n}[]{}"},
    {R"j({{ [q, u, 'a"b', "a'b", 'a\'"b', '\x00\x7f\u200b'] }})j",
     R"j(['it\'s "q" \\ \n\t<&>', 'naïve ß 漢字 😀 Ünï', 'a"b', "a'b", 'a\'"b', '\x00\x7f\u200b'])j"},
    {"{% generation %}abc{% set zz = 1 %}{% endgeneration %}{{ zz }}", "abc"},
    {"{% block foo %}in{{ n }}{% endblock %}{% block bar %}x{% endblock bar %}", "in5x"},
    {"{{ s.foo }}{{ s.foo is defined }}{{ s.upper is defined }}{{ d.items is callable }}{{ s['upper']() }}",
     "FalseTrueTrueHELLO WORLD"},
    {"{{ d['items'] }}{{ d.items()|list }}{{ d.get('items') }}",
     "9[('b', 1), ('a', 2), ('items', 9), ('C', 'x')]9"},
    {R"j({{ '%s is %d years and %.1f' % ('Bob', 5, 2.25) }}{{ '%s' % [1,2] }}{{ "%(a)s-%(b)05d" % {'a': 'x', 'b': 42} }})j",
     "Bob is 5 years and 2.2[1, 2]x-00042"},
    {"{{ s|list|first }}{{ s[0]|upper }}{{ s|first }}{{ [1,2]|last }}{{ 'abc'|reverse }}{{ "
     "[1,2,3]|reverse|list }}",
     "HHH2cba[3, 2, 1]"},
    {"{% if messages is defined and messages|length == 0 and not tools %}ok{% endif %}{{ "
     "add_generation_prompt }}",
     "okTrue"},
    {"{{ -n|abs }}{{ (-n)|abs }}{{ n * -1 }}{{ - n + 3 }}{{ not n == 5 }}{{ n in [5] and not n in [6] }}",
     "55-5-2FalseTrue"},
    {"{{ 'x' in d }}{{ 'a' in d }}{{ 'ell' in s }}{{ 1 in l }}{{ 'q' not in l }}{{ none in [none] }}{{ 2 in "
     "(1,2) }}",
     "FalseTrueTrueTrueTrueTrueTrue"},
    {"{% for c in 'aé漢' %}[{{c}}]{% endfor %}{{ 'aé漢'|length }}{{ 'aé漢'[1:] }}{{ 'aé漢'.find('漢') }}",
     "[a][é][漢]3é漢2"},
    {R"j({{ "a\r\nb" }}|)j", "a\r\nb|"},
    {R"j({% set s2 = 'a\nb\n\nc' %}{{ s2|indent }}|{{ s2|indent(2, true) }}|{{ s2|indent(2, false, true) }}|{{ s2.split('\n') }}{{ s2.splitlines() }})j",
     "a\n    b\n\n    c|  a\n  b\n\n  c|a\n  b\n  \n  c|['a', 'b', '', 'c']['a', 'b', '', 'c']"},
    {"{{ '  x '.strip() }}|{{ 'xxaxx'.strip('x') }}|{{ 'abc'.lstrip('ab') }}|{{ ''.strip() }}|{{ 'a  "
     "b'.split(' ') }}|{{ ' a  b '.split() }}|{{ ''.split() }}|{{ ''.split(',') }}",
     "x|a|c||['a', '', 'b']|['a', 'b']|[]|['']"},
    {"{% if 'a' %}{% endif %}{% if [] %}{% elif {} %}{% else %}E{% endif %}", "E"},
    {"{{ ([1,2,3]|map('string')|join('-')).split('-')|map('int')|sum }}", "6"},
    {"{{ x.y.z if x is defined and x.y is defined else 'no' }}", "no"},
    {"{% for i in range(3) %}{{ i }}{{ ',' if not loop.last }}{% endfor %}", "0,1,2"},
    {"{%- for i in range(2) -%}\n   {{- i -}}\n{%- endfor %}\nend", "01end"},
    {"{{ {'a': 1}.a }}{{ {'a': 1}['a'] }}{{ [1,2].0 }}{{ {'x': [1,2]}.x[1] }}", "1112"},
    {"{{ (n, s) }}{{ n, s }}{{ () }}", "(5, 'Hello World')(5, 'Hello World')()"},
    {"{{ none }}{{ true }}{{ True }}{{ None }}{{ false|string|lower }}", "NoneTrueTrueNonefalse"},
    {"{% set ns = namespace() %}{% set ns.a = 1 %}{{ ns.a }}{{ ns.b is defined }}{{ ns['a'] }}", "1False1"},
    {"{% macro mm(x=none, y=[], z={}) %}{{ x is none }}{{ y }}{{ z }}{% endmacro %}{{ mm() }}{{ mm.name }}{{ "
     "mm.arguments }}",
     "True[]{}mm('x', 'y', 'z')"},
    {"{% set t = 'a' %}{% for t in ['b'] %}{{ t }}{% endfor %}{{ t }}", "ba"},
    {R"j({{ "x" * 3 }}{{ [0] * 2 }}{{ 3 * 'ab' }}{{ 'ab' * 0 }}{{ 'a' * -1 }})j", "xxx[0, 0]ababab"},
    {"{{ 3.7|int }}{{ '3.7'|int }}{{ 'x'|int }}{{ 'x'|int(-1) }}{{ '0x1f'|int(base=16) }}{{ ' 42 '|int }}{{ "
     "none|int }}{{ '1e3'|float }}{{ 'nan'|float }}{{ '1_0'|int }}",
     "330-1314201000.0nan10"},
    {"{{ 2.5|round }}{{ 3.5|round }}{{ 2.675|round(2) }}{{ 1234|round(-2) }}{{ 5|round(1) }}{{ "
     "2.1|round(0,'ceil') }}{{ -2.5|round }}",
     "2.04.02.67120053.0-2.0"},
    {R"j({{ 'a-b_c d(e'|title }}{{ "it's".title() }}{{ 'ABC def'|capitalize }})j", "A-B_c D(EIt'SAbc def"},
    {"{{ [1,2,3,4,5]|batch(2)|map('list')|list }}{{ [[1,2],[3]]|map('sum')|list }}{{ [3,1]|min }}{{ []|max "
     "}}{{ ['b','A']|min }}",
     "[[1, 2], [3, 4], [5]][3, 3]1A"},
    {"{{ messages|length }}{{ tools is none }}{{ tools is defined }}", "0TrueTrue"},
    {"{{ 'abc'.startswith(('x','a')) }}{{ 'abc'.endswith('c', 1) }}{{ 'hello'.replace('l','') }}{{ "
     "'a.b.c'.rsplit('.', 1) }}{{ 'k: v: w'.partition(': ') }}",
     "TrueTrueheo['a.b', 'c']('k', ': ', 'v: w')"},
    {"{% set x = {'role': 'a'} %}{% if x.role == 'a' and (x.content is not defined or x.content is none) "
     "%}ok{% endif %}",
     "ok"},
    {"{{ 5 is divisibleby 5 }}{{ 5 is odd }}{{ 'a' is in ['a'] }}{{ 5 is gt 3 and 5 is lt 9 }}{{ 'A' is "
     "upper }}",
     "TrueTrueTrueTrueTrue"},
    {"{% if false %}{{ x | nofilter }}{% endif %}ok", "ok"},
    {"{% set x = 5 if false %}{{ x is defined }}", "False"},
    {"{% autoescape false %}{{ '<' }}{% endautoescape %}", "<"},
    {"{{ loop is defined }}{% for i in [1] %}{{ loop is defined }}{% endfor %}", "FalseTrue"},
    {"{% for i in [] %}{% else %}{{ n }}{% endfor %}{% for i in [1] %}{% break %}{% else %}E{% endfor %}",
     "5E"},
    {"{% macro a() -%}  x  {%- endmacro %}[{{ a() }}]", "[x]"},
    {R"j({{ mix == [1,"a",None,2.0,True,[1,2],{"k":"v"}] }}{{ {'a':1} == {'a':1.0} }}{{ (1,) == [1] }}{{ 1 == true }}{{ '1' == 1 }}{{ none == false }})j",
     "TrueTrueFalseTrueFalseFalse"},
    {"x{{ '' }}\n {{- ' y' }}\n{% set z = 1 -%}\n   end", "x y\nend"},
    {"{{ 1 if 0 else 2 if 0 else 3 }}{{ (1 if 1) if 1 }}", "31"},
    {"{{ m|groupby('role')|list|length }}{% for g in m|groupby('role') %}{{ g.grouper }}:{{ g.list|length "
     "}};{% endfor %}{% for r, x in m|groupby('role') %}{{ r }}{{ x|map(attribute='n')|list }}{% endfor %}",
     "2assistant:1;user:2;assistant[1]user[2, 3]"},
    {"{{ m|map('upper')|list }}{{ m|map(attribute='n')|map('string')|list }}{{ m|sum('n') }}",
     R"j(["{'ROLE': 'USER', 'N': 2, 'X': 'B'}", "{'ROLE': 'ASSISTANT', 'N': 1, 'X': 'A'}", "{'ROLE': 'USER', 'N': 3, 'X': 'B'}"]['2', '1', '3']6)j"},
    {"{{ ['a','b']|map('replace','a','z')|list }}{{ [' a ']|map('trim')|list }}{{ ['x']|map('default', "
     "'y')|list }}",
     "['z', 'b']['a']['x']"},
    {"{% set foo = 'x' %}{% macro show() %}{{ foo }}{% set foo = 'y' %}{{ foo }}{% endmacro %}{{ show() }}{{ "
     "foo }}",
     "xyx"},
    {"{%- set a = 'x' -%}{{- a -}}  {#- hi -#}  b", "xb"},
    {"{{ \"line1\nline2\" }}", "line1\nline2"},
    {"{% for item in [{'type':'text','text':'a'},{'type':'image'}] %}{% if item['type'] == 'text' %}{{ "
     "item['text'] }}{% else %}<img>{% endif %}{% endfor %}",
     "a<img>"},
    {"{% set out = [] %}{% for i in l %}{% set out = out + [i] %}{% endfor %}{{ out }}", "[]"},
    {"{{ 'Ünï'.upper() }}{{ 'ΑΒΓ'.lower() }}{{ 'éa'.capitalize() }}{{ 'ß'|upper }}", "ÜNÏαβγÉaSS"},
    {"{{ (1,2) | tojson }}{{ [1.0, 1e100, -0.0, 12345678901234567] | tojson }}",
     "[1, 2][1.0, 1e+100, -0.0, 12345678901234567]"},
    {"{{ -3 % 1.5 }} {{ 0.0 % -3 }} {{ -12345 // 0.3 }} {{ -7.5 // 2 }}", "0.0 -0.0 -41151.0 -4.0"},
    {"{{ 'abc'.find('', 3) }}{{ 'abc'.find('', 4) }}{{ 'abc'.count('', 4) }}{{ 'abc'.startswith('', 4) }}",
     "3-10False"},
    {"{{ d.keys() }}{{ ed.values() }}{{ [d.items()] }}{{ d.keys()[0] }}|{{ d.keys() is sequence }}",
     "dict_keys(['b', 'a', 'items', 'C'])dict_values([])[dict_items([('b', 1), ('a', 2), ('items', 9), ('C', "
     "'x')])]|False"},
    {"{{ d.keys()|first }}{{ d.values()|list|last }}{{ d.items()|length }}{{ 'a' in d.keys() }}{{ not "
     "ed.keys() "
     "}}{{ d.keys() == ['b', 'a', 'items', 'C'] }}",
     "bx4TrueTrueFalse"},
    {"{{ huge }} {{ huge|tojson }} {{ [huge, lower] }} {{ huge is integer }}{{ huge > n }}{{ huge == huge "
     "}}{{ {huge: 1}[huge] "
     "}}",
     "18446744073709551615 18446744073709551615 [18446744073709551615, -123456789012345678901234567890] "
     "TrueTrueTrue1"},
};

const char* const kErrors[] = {
    "{% macro f(a,b=2,*c) %}{{a}}{% endmacro %}{{f(1)}}",
    "{% macro f(a) %}{{a}}{% endmacro %}{{f(1,2)}}",
    "{% macro f(a) %}{{a}}{% endmacro %}{{f(1,z=2)}}",
    "{{ undef.x }}",
    "{{ undef['x'] }}",
    "{{ d.zz }}{{ d.zz.y }}",
    "{{ undef + 'x' }}",
    "{{ raise_exception('boo ' ~ n) }}",
    "{{ l.append(1) }}",
    "{% set _ = l.append(1) %}{{l}}",
    "{{ 1 / 0 }}",
    "{{ none + 1 }}",
    "{{ 'a' + 1 }}",
    "{{ (m|selectattr('role','equalto','zz')) and 'T' }}{{ m|selectattr('role')|length }}",
    "{% set d2 = {'a': 1} %}{% set d2.a = 2 %}",
    "{{ f(1) }}",
    "{{ l|sort }}{{ ls|sort }}{{ ls|sort(case_sensitive=True) }}{{ ls|sort(reverse=True) }}{{ [true, false, "
    "2]|sort }}{{ ['a', 1]|sort }}",
    "{{ ''.join(['a','b']) }}{{ ', '.join(ls) }}{{ ','.join(l) }}",
    "{% if %}",
    "{{ }}",
    "{% for x in %}{% endfor %}",
    "{% endif %}",
    "{{ 'abc",
    "{% if true %}",
    "{{ a b }}",
    "{{ 1 2 }}",
    "{{ [1,2 }}",
    "{{ x | nofilter }}",
    "{{ d | items | list }}{{ d.keys() | list }}{{ d.values() | sum(start=0) }}",
    "{{ [1,2] < [1,3] }}{{ 'a' < 'b' }}{{ 1 < 2.5 }}{{ 1 < 'a' }}",
    "{{ d|length }}{{ 5|length }}",
    "{{ n|string + 'x' }}{{ n ~ 'x' ~ f ~ none ~ true }}{{ 1 + 2 ~ 3 + 4 }}",
    "{{ d.keys()|tojson }}",
    "{{ d.keys() + ['x'] }}",
    "{{ d.items()[1:] }}",
    "{{ huge + 1 }}",
    "{{ -huge }}",
    "{{ '{:d}'.format(f) }}",
    "{{ '%x' % f }}",
    "{% call undefd() %}x{% endcall %}",
    "{{ {'b':1,'a':{'d':1,'c':2}} | tojson(sort_keys=true) }}{{ {1:2, none:3, true:4, 2.5:1} | tojson }}{{ "
    "undef | tojson }}",
};

std::string repeated(std::string_view text, size_t count) {
  std::string result;
  for (size_t i = 0; i < count; ++i) result += text;
  return result;
}

/// One line that begins as every error of a template does.
void check_fails(std::string_view source, std::string_view part = "") {
  CAPTURE(source.substr(0, 200));
  const auto caught = error_of([&] { render(source); });
  CAPTURE(caught.message);
  CHECK(caught.message.starts_with("[chat template] line "));
  CHECK(caught.message.find('\n') == std::string::npos);
  CHECK(caught.message.find(part) != std::string::npos);
}

}  // namespace

TEST_SUITE("base: jinja") {
  TEST_CASE("templates render as Jinja2 renders them") {
    for (const Row& row : kRows) {
      CAPTURE(row.source);
      CHECK(render(row.source) == row.text);
    }
  }

  TEST_CASE("templates that Jinja2 refuses are refused") {
    for (const char* source : kErrors) check_fails(source);
  }

  TEST_CASE("an error names its line") {
    check_fails("a\n\n{{ 1 +\n undef.x }}", "line 3: 'undef' is undefined");
    check_fails("{# \n #}\n{% if %}", "line 3: ");
    check_fails("\n{{ raise_exception('no\\nsystem') }}", "line 2: no");
  }

  TEST_CASE("a template that does not end is stopped") {
    check_fails(
        "{% set r = range(99) %}{% for a in r %}{% for b in r %}{% for c in r %}{% for d in r %}{{ a + b "
        "}}{% endfor %}{% endfor %}{% endfor %}{% endfor %}",
        "steps");
    check_fails("{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}", "nested too deeply");
    check_fails("{% macro f() %}{{ f() }}{{ f() }}{% endmacro %}{{ f() }}", "nested too deeply");
    check_fails("{% for x in [1] recursive %}{{ loop([1]) }}{% endfor %}", "nested too deeply");
    check_fails("{{ range(100001) }}", "100000");
  }

  TEST_CASE("a template that wants all memory is stopped") {
    const std::string doubled =
        "{% set ns = namespace(x='ab', l=[]) %}{% for i in range(60) %}{% set ns.x = ns.x ~ ns.x %}{% endfor "
        "%}";
    check_fails(doubled, "too much memory");
    for (const char* expression :
         {"'ab' * 10 ** 15", "[1] * 10 ** 15", "'x'.center(10 ** 15)", "'x'.zfill(10 ** 15)",
          "'%999999999999d' % 1", "'%.999999999999f' % 1.5", "'{:999999999999}'.format(1)",
          "'a\\nb' | indent(10 ** 15)", "{'a': 1} | tojson(indent=10 ** 15)",
          "[1] | batch(10 ** 15, 0) | list", "[1] | slice(10 ** 15) | list",
          "('a' * 10 ** 7).replace('', 'b' * 10 ** 7)", "(['a'] * 10 ** 5) | join('b' * 10 ** 7)"})
      check_fails(fmt::format("{{{{ {} }}}}", expression));
    // A list whose text is 2^60 times as long as the list.
    for (const char* use : {"ns.l", "ns.l | tojson", "ns.l == [ns.l[0], ns.l[1]]", "ns.l | string | length"})
      check_fails(
          fmt::format("{{% set ns = namespace(l=[1]) %}}{{% for i in range(60) %}}"
                      "{{% set ns.l = [ns.l, [ns.l]] %}}{{% endfor %}}{{{{ {} }}}}",
                      use));
  }

  TEST_CASE("what is looked for is found in linear time, wherever its parts are") {
    const std::string texts =
        "{% set x = 'a' * 1000000 %}{% set y = 'a' * 500000 ~ 'b' %}"
        "{% set z = 'b' ~ 'a' * 500000 %}";
    const std::string uses =
        "{{ y in x }}{{ x.find(y) }}{{ x.rfind(z) }}{{ x.count(y) }}{{ x.split(y)|length }}"
        "{{ x.rsplit(z)|length }}{{ x.replace(y, '')|length }}{{ x.partition(y)|length }}"
        "{{ x.rpartition(z)|length }}{{ x.strip(y)|length }}";
    CHECK(render(texts + uses) == "False-1-10111000000330");
    CHECK(render("{{ 'a--b--c'.rsplit('--', 1) }}{{ 'aaaaa'.rsplit('aa') }}{{ '--a'.rsplit('--') }}"
                 "{{ 'abcab'.rfind('ab') }}{{ 'abcab'.rpartition('ab')|tojson }}{{ 'abc'.rfind('') }}") ==
          "['a--b', 'c']['a', '', '']['', 'a']3[\"abc\", \"ab\", \"\"]3");
  }

  TEST_CASE("deep nesting is an error, not a crash") {
    constexpr size_t kMany = 100'000;
    for (std::string_view opening : {"(", "[", "{1:", "-", "not ", "a[", "f(", "a if ", "a.b(", "a|default("})
      check_fails("{{ " + repeated(opening, kMany) + "a }}");
    for (std::string_view link :
         {" + a", ".a", "|upper", "[0]", "()", " and a", " is defined", " if a", "**a"})
      check_fails("{{ a" + repeated(link, kMany) + " }}");
    for (std::string_view block : {"{% if a %}", "{% for x in a %}", "{% macro m() %}", "{% set x %}",
                                   "{% filter upper %}", "{% with %}"})
      check_fails(repeated(block, kMany));
    check_fails("{% set " + repeated("(", kMany));
  }

  TEST_CASE("what is not complete is an error") {
    for (std::string_view source : {"{{",          "{%",
                                    "{#",          "{{ a",
                                    "{% if a",     "{% if a %}",
                                    "{% raw %}",   "{% for x in a %}{% else %}",
                                    "{{ 'a",       "{{ \"a\\",
                                    "{{ a }",      "{% macro f( %}",
                                    "{{ {'a' }}",  "{{ a[1: }}",
                                    "{{ a. }}",    "{{ a | }}",
                                    "{% set %}",   "{% set a = %}",
                                    "{% for %}",   "{% call f() %}",
                                    "{% break %}", "{% endfor %}"})
      check_fails(source);
    check_fails("a\n\xff{{ 1 }}", "line 2: is not UTF-8");
    check_fails(repeated("{{ 1 }", 3));
  }

  TEST_CASE("objects may hold each other") {
    CHECK(render("{% set ns = namespace() %}{% set ns.me = ns %}{% set ns.l = [ns] %}{{ ns.me.l[0].me is "
                 "defined }}") == "True");
    CHECK(render("{% set ns = namespace() %}{% for i in [1] %}{% macro f() %}{{ i }}{% endmacro %}"
                 "{% set ns.f = f %}{% endfor %}{{ ns.f() }}") == "1");
    CHECK(render("{% set ns = namespace() %}{% for i in [1, 2] %}{% set ns.loop = loop %}{% endfor %}"
                 "{{ ns.loop.index }}{{ ns.loop.nextitem is defined }}") == "3False");
  }

  TEST_CASE("an engine's own limits are far above what templates need") {
    CHECK(render("{{ ('word ' * 200000) | length }}") == "1000000");
    CHECK(render("{% set ns = namespace(n=0) %}{% for i in range(99999) %}{% set ns.n = ns.n + i %}{% endfor "
                 "%}{{ ns.n }}") == "4999850001");
  }
}
