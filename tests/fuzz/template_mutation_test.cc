// SPDX-License-Identifier: Apache-2.0
// Mutated chat templates: each is refused or renders a fixed conversation, with one hone::Error and
// within its limits.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <string>
#include <string_view>

#include "hone/core/file/file_io.h"
#include "hone/core/file/json_io.h"
#include "hone/text/chat_template/interpreter.h"
#include "hone/text/chat_template/parser.h"
#include "tests/fuzz/mutation_support.h"

namespace hone::text {
namespace {

constexpr RenderLimits kLimits{
    .steps = 100'000, .bytes = std::size_t{1} << 20, .work = std::size_t{4} << 20, .depth = 50};

const char* const kMessages = R"([{"role":"system","content":"Be <|im_end|> brief."},
  {"role":"user","content":" é {{ x }}\n"},{"role":"assistant","content":null,"tool_calls":[{"id":
  "call12345","type":"function","function":{"name":"f","arguments":{"a":[1,2.5,null,{"b":"\u2028"}]
  }}}]},{"role":"tool","content":"7","tool_call_id":"call12345"},{"role":"assistant","content":
  "<think>\nhm\n</think>\n\n7"},{"role":"user","content":"Thanks."}])";
const char* const kTools = R"([{"type":"function","function":{"name":"f","description":"It is é.",
  "parameters":{"type":"object","properties":{"a":{"type":"array"}},"required":["a"]}}}])";
const char* const kEverything =
    R"({% set ns = namespace(a=[1, 2], t='x', d={'k': (1,), none: 0.5}) %}
{%- macro m(a, b=ns.a | length) %}{{ a ~ b }}{% if b > 0 %}
{{- m(a, b - 1) }}{% endif %}{% endmacro %}
{%- for i in range(9) if i is not divisibleby 4 %}{% set ns.t = ns.t + loop.index | string %}
{%- if loop.last %}{% break %}{% elif i in ns.a %}{% continue %}{% endif %}{{ loop.cycle(1, 'a') }}
{%- else %}none{% endfor %}{{ m('q')[::-1] }}{% raw %}{{ }}{% endraw %}{# note #}
{%- set ns.a = [ns.a, ns.d, ns.t] %}{{ ns.a | tojson(indent=2) }}{{ 'a,b'.rsplit(',', 1) | sort }}
{%- call(u) m(1) %}{{ u }}{% endcall %}{% filter upper | indent(2) %}a
{{- -1.5e3 // 7 }}{% endfilter %}
{%- set b | trim %} x {% endset %}{{ b * 3 if b else 'no' }}{{ messages | map(attribute='role')
| unique | join('-') }}{{ messages[1:] | selectattr('role', 'in', ['user']) | list | first }}
{{- 7 | round(-1) }}
{%- for k, v in ns.d.items() %}{{ k }}={{ v is string and not v }}{% endfor %}
{{- '\u00e9' | int(3) }})";

std::size_t pick(PhiloxStream& random, std::size_t below) {
  return random.below(static_cast<std::uint32_t>(below));
}

// An expression, with $ in the place of its parts.
std::string random_expression(PhiloxStream& random, int depth) {
  static constexpr std::array<std::string_view, 20> kLeaves = {
      "1",        "-7",       "0",
      "2.5",      "1e999",    "9223372036854775807",
      "''",       "'a b,a'",  "'\\u00e9\\n'",
      "none",     "true",     "missing",
      "[]",       "{}",       "()",
      "messages", "tools",    "ns",
      "ns.t",     "range(99)"};
  static constexpr std::array<std::string_view, 60> kForms = {
      "$ + $",
      "$ - $",
      "$ * $",
      "$ / $",
      "$ // $",
      "$ % $",
      "$ ** $",
      "$ ~ $",
      "$ == $",
      "$ < $",
      "$ in $",
      "$ and $",
      "$ or $",
      "not $",
      "-$",
      "($)",
      "[$, $]",
      "($,)",
      "{'k': $, 1: $}",
      "$[$]",
      "$[$:$]",
      "$[::$]",
      "$ if $ else $",
      "$.a",
      "$ is defined",
      "$ is sameas $",
      "$ is divisibleby $",
      "$ | tojson",
      "$ | tojson(indent=$)",
      "$ | join($)",
      "$ | replace($, $)",
      "$ | sort(reverse=$)",
      "$ | map(attribute='a.b') | list",
      "$ | map('trim') | list",
      "$ | select | list",
      "$ | selectattr('role', 'in', $) | list",
      "$ | length",
      "$ | first",
      "$ | reverse | list",
      "$ | unique | list",
      "$ | dictsort",
      "$ | items | list",
      "$ | int",
      "$ | float",
      "$ | round($)",
      "$ | abs",
      "$ | sum",
      "$ | max",
      "$ | indent($)",
      "$ | title",
      "$ | default($, true)",
      "$ | string",
      "$.split($)",
      "$.rsplit(none, $)",
      "$.strip($)",
      "$.splitlines()",
      "$.get($)",
      "$.count($)",
      "namespace(a=$)",
      "dict(a=$)"};
  if (depth == 0) return std::string(kLeaves[pick(random, kLeaves.size())]);
  std::string out;
  for (const char c : kForms[pick(random, kForms.size())]) {
    const int inner = static_cast<int>(pick(random, static_cast<std::size_t>(depth)));
    out += c == '$' ? random_expression(random, inner) : std::string(1, c);
  }
  return out;
}

// What templates are made of, whole or in part.
std::string random_part(PhiloxStream& random) {
  static constexpr std::array<std::string_view, 30> kParts = {"{%",
                                                              "%}",
                                                              "{{",
                                                              "}}",
                                                              "{#",
                                                              "#}",
                                                              "{%- ",
                                                              " -%}",
                                                              "(",
                                                              ")",
                                                              "[",
                                                              "]",
                                                              "{",
                                                              "|",
                                                              "~",
                                                              "**",
                                                              ":",
                                                              "=",
                                                              "<",
                                                              " in ",
                                                              " not ",
                                                              " is ",
                                                              " if ",
                                                              " else ",
                                                              "{% endfor %}",
                                                              "{% if 1 %}",
                                                              "{% endif %}",
                                                              "{% macro m(a) %}",
                                                              "{% endmacro %}",
                                                              "'\\ud800'"};
  return std::string(kParts[pick(random, kParts.size())]);
}

std::string random_statement(PhiloxStream& random) {
  static constexpr std::array<std::string_view, 12> kStatements = {
      "{{ $ }}",
      "{{- $ -}}",
      "{% set ns.t = $ %}",
      "{% set ns.u = [ns.u, $] %}",
      "{% for i in $ %}{{ i }}{{ loop.cycle($, $) }}{% set ns.t = $ %}{% endfor %}",
      "{% for i, j in $ if $ %}{{ j }}{% if $ %}{% break %}{% endif %}{% else %}$ {% endfor %}",
      "{% set q %}{{ $ }}{% endset %}{{ q }}",
      "{% filter upper %}{{ $ }}{% endfilter %}",
      "{% for i in range(200) %}{% set ns.t = [ns.t, ns.t] %}{% endfor %}{{ ns.t == $ }}{{ $ }}",
      "{% macro g(a, b=$) %}{{ a }}{{ g(b) if $ }}{{ caller() }}{% endmacro %}{{ g($) }}",
      "{% macro h(a) %}{{ a ~ $ }}{{ caller() }}{% endmacro %}{% call h($) %}{{ $ }}{% endcall %}",
      "{% if $ %}{% set ns.t = $ %}{% set ns.self = ns %}{% endif %}"};
  std::string out;
  for (const char c : kStatements[pick(random, kStatements.size())]) {
    const int depth = static_cast<int>(pick(random, 5));
    out += c == '$' ? random_expression(random, depth) : std::string(1, c);
  }
  return out;
}

// Puts statements in front of tags, and sometimes breaks the template.
void mutate_template(std::string& source, PhiloxStream& random) {
  for (std::size_t n = 1 + pick(random, 3); n > 0; --n) {
    const std::size_t at = source.find("{%", pick(random, source.size() + 1));
    source.insert(std::min(at, source.size()), random_statement(random));
  }
  if (pick(random, 4) == 0) {
    const std::size_t at = pick(random, source.size() + 1);
    source.replace(at, pick(random, 12), random_part(random));
  }
  if (pick(random, 8) == 0) hone::test::mutate_binary(source, random);
}

const char* const kNames = "{% set ns = namespace(t='x') %}\n";

void render(const std::string& source) {
  static const Json messages = Json::parse(kMessages), tools = Json::parse(kTools);
  const Block program = parse_template(source, "fuzz");
  run_template(program,
               {{"messages", Value::from_json(messages, Origin::Data)},
                {"tools", Value::from_json(tools, Origin::Data)},
                {"bos_token", Value("<s>")},
                {"eos_token", Value("</s>")},
                {"add_generation_prompt", Value(true)}},
               kLimits);
}

class TemplateMutation : public testing::TestWithParam<const char*> {};

TEST_P(TemplateMutation, renders_or_is_refused) {
  const std::string name = GetParam();
  const auto folder = hone::test::source_file("tests/text/chat_templates");
  const std::string source =
      name == "everything" ? kEverything : kNames + read_text_file(folder / (name + ".jinja"));
  const auto outcome = hone::test::run_mutations(source, mutate_template, render);
  EXPECT_GT(outcome.opened, 100);
  EXPECT_GT(outcome.refused, 1000);
}

INSTANTIATE_TEST_SUITE_P(, TemplateMutation,
                         testing::Values("everything", "chatml", "deepseek", "llama3", "mistral",
                                         "phi"),
                         [](const auto& name) { return std::string(name.param); });

}  // namespace
}  // namespace hone::text
