// SPDX-License-Identifier: Apache-2.0
// What jinja2 documents, and gives, for small templates.
#include "hone/text/chat_template/chat_template.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/text/toy_vocabulary.h"

namespace hone::text {
namespace {

using testing::HasSubstr;
using Category = ErrorCategory;

struct Case {
  const char *source, *expected;
};

Conversation conversation() {
  return {.messages = Json::parse(R"([{"role": "user", "content": "Hi  there"},
                                      {"role": "assistant", "content": "Hello\nyou"}])"),
          .variables = Json::parse(R"({"x": 5, "f": 2.5, "s": "héllo", "l": [3, 1, 2], "n": null,
                                       "d": {"b": 1, "a": [1, {"c": null}]}, "e": ""})")};
}

std::string render(std::string_view source, const Conversation& given = conversation()) {
  return joined_text(ChatTemplate(source, {{"bos_token", "<s>"}}).render(given));
}

void expect_texts(std::initializer_list<Case> cases) {
  for (const Case& one : cases) {
    SCOPED_TRACE(one.source);
    const test::Failure failure =
        test::failure_of([&] { EXPECT_EQ(render(one.source), one.expected); });
    EXPECT_FALSE(failure.failed) << failure.message;
  }
}

TEST(ChatTemplate, drops_white_space_around_tags_as_they_say) {
  expect_texts({
      {"a\n  {% if 1 %}\n  b\n  {% endif %}\nc\n", "a\n  b\nc"},
      {"a\n  {# note #}\nb  {# note #}\nc\n\n", "a\nb  c\n"},
      {"a \n {%- if 1 -%} \n b \n {%- endif -%} \n c", "abc"},
      {"a\n {%+ if 1 +%}\nb{% endif %}", "a\n \nb"},
      {"a {{- 1 -}} b {{ 2 }}\n {{ 3 }}\n", "a1b 2\n 3"},
      {"a {#- note -#} b", "ab"},
      {"{% raw %}{{ x }} {# {% if %}{% endraw %}", "{{ x }} {# {% if %}"},
      {"a {%- raw -%} b {% endraw -%} \n c", "ab c"},
      {"\r\na\r{% if 1 %}\r\nb{% endif %}\r\n", "\na\nb"},
      {"x {% if 1 %} y {% endif %} z", "x  y  z"},
  });
}

TEST(ChatTemplate, keeps_names_in_the_scope_that_sets_them) {
  expect_texts({
      {"{% if 1 %}{% set z = 3 %}{% endif %}{{ z }}", "3"},
      {"{% set y = 1 %}{% for i in l %}{% set y = y + i %}{{ y }} {% endfor %}{{ y }}", "4 2 3 1"},
      {"{% set ns = namespace(y=1) %}{% for i in l %}{% set ns.y = ns.y + i %}{% endfor %}{{ ns.y "
       "}}",
       "7"},
      {"{% set x = 1 %}{% macro m() %}{{ x }}{% endmacro %}{% set x = 2 %}{{ m() }}", "2"},
      {"{% macro m() %}{{ i }}{% endmacro %}{% for i in l %}[{{ m() }}]{% endfor %}", "[][][]"},
      {"{% set b %}in{% set inner = 1 %}{% endset %}{{ b }}{{ inner is defined }}", "inFalse"},
      {"{% for x in [1] %}{{ x }}{% endfor %}{{ x }}{{ loop is defined }}", "15False"},
      {"{% set a, (b, c) = 1, [2, 3] %}{{ a }}{{ b }}{{ c }}", "123"},
      {"{% macro m(a, b=a) %}{{ a }}-{{ b }}{% endmacro %}{{ m(1) }} {{ m(b=2, a=3) }} {{ m() }}",
       "1-1 3-2 -"},
      {"{% macro m(t) %}<{{ t }}>{{ caller(7) }}{% endmacro %}{% call(v) m('b') %}{{ v }}{{ x }}"
       "{% endcall %}",
       "<b>75"},
      {"{% macro f(n) %}{{ n * (f(n - 1) | int) if n > 1 else 1 }}{% endmacro %}{{ f(5) }}", "120"},
  });
}

TEST(ChatTemplate, runs_loops) {
  expect_texts({
      {"{% for i in l %}{{ loop.index }}{{ i }}{{ ',' if not loop.last }}{% endfor %}", "13,21,32"},
      {"{% for k, v in d.items() %}{{ k }}={{ v }};{% endfor %}", "b=1;a=[1, {'c': None}];"},
      {"{% for i in [] %}x{% else %}none{% endfor %}", "none"},
      {"{% for i in range(6) if i % 2 %}{{ loop.index0 }}{{ loop.length }}{{ i }} {% endfor %}",
       "031 133 235 "},
      {"{% for i in range(9) %}{% if i == 1 %}{% continue %}{% elif i == 4 %}{% break %}{% endif %}"
       "{{ i }}{% endfor %}",
       "023"},
      {"{% for i in l %}{{ loop.previtem }}<{{ loop.nextitem }} {% endfor %}", "<1 3<2 1< "},
      {"{% for i in l %}{{ loop.cycle('a', 'b') }}{{ loop.changed(i > 1) }}{% endfor %}",
       "aTruebTrueaTrue"},
      {"{% for c in 'añb' %}{{ c }}.{% endfor %}", "a.ñ.b."},
      {"{% for i in l %}{% set outer = loop %}{% for j in [0] %}{{ outer.index }}{% endfor %}"
       "{% endfor %}",
       "123"},
      {"{% generation %}{{ x }}{% endgeneration %}{% filter upper %}a{{ x }}{% endfilter %}",
       "5A5"},
  });
}

TEST(ChatTemplate, computes_expressions_as_python) {
  expect_texts({
      {"{{ 7 // 2 }} {{ -7 // 2 }} {{ -7 % 3 }} {{ 7 / 2 }} {{ 2 ** 3 ** 2 }} {{ 2 ** -1 }}",
       "3 -4 2 3.5 64 0.5"},
      {"{{ 1 < 2 < 3 }} {{ 1 < 3 < 2 }} {{ 1 == 1.0 }} {{ true == 1 }} {{ (1,) == [1] }}",
       "True False True True False"},
      {"{{ 2 in l }} {{ 9 not in l }} {{ 'b' in d }} {{ 'ell' in s }} {{ 'a' in missing }}",
       "True True True False False"},
      {"{{ x and 0 }} {{ '' or 'z' }} {{ not x }} {{ 'y' if x > 30 }}|{{ 1 if 0 else 2 }}",
       "0 z False |2"},
      {"{{ s[1] }}{{ s[-1] }}{{ s[1:3] }} {{ l[::-1] }} {{ l[-2:] }} {{ l[9] }}|{{ d.q }}|{{ l.0 "
       "}}",
       "éoél [2, 1, 3] [1, 2] ||3"},
      {"{{ 'a' ~ 1 ~ none }} {{ 'ab' * 2 }} {{ [1] + [2] }} {{ 'a' 'b' }} {{ 1 + 1 is even }}",
       "a1None abab [1, 2] ab 1"},
      {"{{ -x | abs }} {{ 0x1f + 0b11 }} {{ 1_000 }} {{ d['a'][1].c }} {{ missing is none }}",
       "5 34 1000 None False"},
      {"{{ dict(a=1, b=2) }} {{ {1: 'a', 1.0: 'b'} }} {{ range(3) | list }}",
       "{'a': 1, 'b': 2} {1: 'b'} [0, 1, 2]"},
      {R"({{ 'it\'s' }} {{ "\x41\u00e9\U0001F600\n" }}{{ '\q\101' }})", "it's Aé😀\n\\qA"},
  });
}

TEST(ChatTemplate, spells_values_as_python) {
  expect_texts({
      {"{{ x }} {{ 7.0 }} {{ 1e20 }} {{ 1e16 }} {{ 1e15 }} {{ 0.0001 }} {{ 0.00001 }} {{ -0.0 }}",
       "5 7.0 1e+20 1e+16 1000000000000000.0 0.0001 1e-05 -0.0"},
      {"{{ true }} {{ none }} {{ missing }}| {{ [true, none, 'a', 1.5] }} {{ (1,) }} {{ () }}",
       "True None | [True, None, 'a', 1.5] (1,) ()"},
      {R"({{ ["it's", 'q"', "both'\"", 'a\\b', "\n\x00\u200b", 'é'] }})",
       R"(["it's", 'q"', 'both\'"', 'a\\b', '\n\x00\u200b', 'é'])"},
      {R"({{ {'a': [1.0, none, "é<\"\n\x7f"]} | tojson }})",
       "{\"a\": [1.0, null, \"é<\\\"\\n\x7f\"]}"},
      {R"({{ 'é😀' | tojson(ensure_ascii=true) }})", R"("\u00e9\ud83d\ude00")"},
      {"{{ {'b': [], 'a': [1]} | tojson(indent=2) }}",
       "{\n  \"b\": [],\n  \"a\": [\n    1\n  ]\n}"},
      {"{{ d | tojson(sort_keys=true, separators=(',', ':')) }}", R"({"a":[1,{"c":null}],"b":1})"},
      {"{{ {1: 2, none: 3, true: 4} | tojson }}", R"({"1": 4, "null": 3})"},
  });
}

TEST(ChatTemplate, has_the_filters_that_templates_use) {
  expect_texts({
      {"{{ ' a ' | trim }}{{ 'xax' | trim('x') }}{{ 'aa' | replace('a', 'b', 1) }}", "aaba"},
      {"{{ 'hELLO wo' | capitalize }} {{ \"it's a-b\" | title }} {{ 'a' | upper }}{{ 'B' | lower "
       "}}",
       "Hello wo It's A-B Ab"},
      {"{{ missing | default('q') }}{{ e | default('q') }}{{ e | d('q', true) }}{{ n | d('q') }}",
       "qqNone"},
      {"{{ l | sort }} {{ l | sort(reverse=true) }} {{ ['b', 'A'] | sort }} {{ d | dictsort }}",
       "[1, 2, 3] [3, 2, 1] ['A', 'b'] [('a', [1, {'c': None}]), ('b', 1)]"},
      {"{{ l | first }}{{ l | last }}{{ l | length }}{{ s | count }}{{ l | min }}{{ l | max }}{{ l "
       "| sum }}",
       "3235136"},
      {"{{ l | join('-') }} {{ messages | map(attribute='role') | join(', ') }} {{ 'abc' | reverse "
       "}}",
       "3-1-2 user, assistant cba"},
      {"{{ messages | selectattr('role', '==', 'user') | list | length }}"
       "{{ messages | rejectattr('tools', 'defined') | list | length }}"
       "{{ l | select('odd') | list }}{{ l | reject('gt', 2) | list }}",
       "12[3, 1][1, 2]"},
      {"{{ '42' | int }} {{ 'z' | int(7) }} {{ '3.7' | int }} {{ '2.5' | float }} {{ 42 | string "
       "}}",
       "42 7 3 2.5 42"},
      {"{{ 2.5 | round }} {{ 7 | round }} {{ 2.675 | round(2) }} {{ 2.1 | round(0, 'ceil') }}",
       "2.0 7 2.67 3.0"},
      {"{{ 'a\nb\n\nc' | indent }}", "a\n    b\n\n    c"},
      {"{{ [3, 1, 3] | unique | list }}{{ 'a b' | wordcount }}{{ d | items | first }}",
       "[3, 1]2('b', 1)"},
  });
}

TEST(ChatTemplate, has_tests_and_methods) {
  expect_texts({
      {"{{ x is defined }}{{ y is not defined }}{{ n is none }}{{ s is string }}{{ d is mapping }}",
       "TrueTrueTrueTrueTrue"},
      {"{{ true is integer }}{{ true is number }}{{ 1.0 is float }}{{ s is iterable }}{{ x is "
       "sequence }}",
       "FalseTrueTrueTrueFalse"},
      {"{{ 9 is divisibleby 3 }}{{ 3 is odd }}{{ x is in l }}{{ x is eq 5 }}{{ 'a' is lower }}",
       "TrueTrueFalseTrueTrue"},
      {"{{ 'a,b,c'.split(',', 1) }}{{ 'a,b,c'.rsplit(',', 1) }}{{ ' a  b '.split() }}",
       "['a', 'b,c']['a,b', 'c']['a', 'b']"},
      {"{{ '\n a\n'.lstrip('\n') }}|{{ ' a '.rstrip() }}|{{ 'abc'.strip('ac') }}", " a\n| a|b"},
      {"{{ 'abc'.startswith('a') }}{{ 'abc'.endswith(('x', 'c')) }}{{ 'éb'.find('b') }}{{ "
       "'a'.find('z') }}",
       "TrueTrue1-1"},
      {"{{ d.get('q') }}{{ d.get('q', 4) }}{{ d.keys() | list }}{{ d.values() | first }}",
       "None4['b', 'a']1"},
      {"{{ ', '.join(['a', 'b']) }}{{ 'a\nb\r\nc'.splitlines() }}{{ 'xay'.removeprefix('x') }}",
       "a, b['a', 'b', 'c']ay"},
      {"{{ {'items': 5}['items'] }}{{ {'x': 1}.items() | list }}{{ 'aXb'.replace('X', '') }}",
       "5[('x', 1)]ab"},
  });
}

TEST(ChatTemplate, names_what_a_request_gives) {
  Conversation given = conversation();
  given.variables["messages"] = "not these";
  given.variables["bos_token"] = "<b>";
  given.add_generation_prompt = false;
  given.now = 43'200;  // noon of the first day of 1970 in Greenwich
  EXPECT_EQ(render("{{ messages | length }}{{ bos_token }}{{ add_generation_prompt }}{{ tools }}"
                   "{{ documents }}{{ strftime_now('%Y') }}",
                   given),
            "2<b>FalseNoneNone1970");
}

struct Refusal {
  const char* source;
  Category category;
  const char* words;
};

TEST(ChatTemplate, says_what_is_wrong_and_where) {
  const std::initializer_list<Refusal> refusals = {
      {"a\n{% if x %}", Category::CorruptFile, "Line 2 of the chat template: \"endif\" is missing"},
      {"{{ x", Category::CorruptFile, "does not end"},
      {"{# x", Category::CorruptFile, "comment"},
      {"\n\n{{ 'x }}", Category::CorruptFile, "Line 3"},
      {"{{ ! }}", Category::CorruptFile, "not part of an expression"},
      {"{% endif %}", Category::CorruptFile, "ends nothing"},
      {"{% break %}", Category::CorruptFile, "outside of a loop"},
      {"{% set none = 1 %}", Category::CorruptFile, "no name"},
      {"{{ '\\u12' }}", Category::CorruptFile, "escape"},
      {"{{ 99999999999999999999 }}", Category::CorruptFile, "too large"},
      {"\n{% include 'a' %}", Category::Unsupported, "Line 2 of the chat template has the tag"},
      {"{% for i in l recursive %}{% endfor %}", Category::Unsupported, "recursive"},
      {"{{ x | escape }}", Category::Unsupported, "filter \"escape\""},
      {"{{ x is prime }}", Category::Unsupported, "test \"prime\""},
      {"{{ raise_exception('Roles must alternate.') }}", Category::InvalidArgument,
       "[chat template] Roles must alternate."},
      {"\n{{ missing.attribute }}", Category::InvalidArgument, "Line 2: \"missing\" is undefined"},
      {"{{ 'a' + 1 }}", Category::InvalidArgument, "str and int"},
      {"{{ 1 / 0 }}", Category::InvalidArgument, "zero"},
      {"{{ [3, 'a'] | sort }}", Category::InvalidArgument, "order"},
      {"{% for i in 5 %}{% endfor %}", Category::InvalidArgument, "int"},
      {"{% for a, b in [[1]] %}{% endfor %}", Category::InvalidArgument, "2 names for 1 values"},
      {"{% set d.a = 1 %}", Category::InvalidArgument, "namespace"},
      {"{% macro m(a) %}{% endmacro %}{{ m(1, 2) }}", Category::InvalidArgument, "1 parameters"},
      {"{% macro m(a) %}{% endmacro %}{{ m(b=2) }}", Category::InvalidArgument, "argument \"b\""},
      {"{{ l.append(1) }}", Category::InvalidArgument, "undefined"},
      {"{{ range | tojson }}", Category::InvalidArgument, "tojson"},
  };
  for (const Refusal& one : refusals) {
    SCOPED_TRACE(one.source);
    const test::Failure failure = test::failure_of([&] { render(one.source); });
    EXPECT_TRUE(failure.failed);
    EXPECT_EQ(failure.category, one.category);
    EXPECT_THAT(failure.message, HasSubstr(one.words));
  }
}

}  // namespace
}  // namespace hone::text
