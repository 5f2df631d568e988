// SPDX-License-Identifier: Apache-2.0
// Which text of a prompt may spell tokens, and where templates must end.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "hone/core/file/file_io.h"
#include "hone/text/chat_template/chat_template.h"
#include "hone/text/chat_template/interpreter.h"
#include "hone/text/chat_template/parser.h"
#include "tests/support/test_data.h"
#include "tests/text/toy_vocabulary.h"

namespace hone::text {
namespace {

using testing::HasSubstr;
using testing::Not;

// The prompt with {text of requests} and <text of answers>.
std::string marked(const std::vector<TextSegment>& segments) {
  std::string out;
  for (const TextSegment& segment : segments) {
    EXPECT_TRUE(segment.allow_added || !segment.allow_special);
    EXPECT_FALSE(segment.text.empty());
    const char* const marks = segment.allow_special ? "" : segment.allow_added ? "<>" : "{}";
    if (*marks != '\0') out += marks[0];
    out += segment.text;
    if (*marks != '\0') out += marks[1];
  }
  return out;
}

TEST(ChatTemplateOrigins, survive_all_that_templates_do) {
  const Conversation given = {
      .messages = Json::parse(R"([{"role": "user", "content": " Ab,c ", "name": "N"},
                                  {"role": "assistant", "content": "Yo\n"}])"),
      .tools = Json::parse(R"([{"k": "v\n", "n": 1}])"),
      .variables = Json::parse(R"({"q": "w"})")};
  struct Case {
    const char *source, *expected;
  };
  const std::initializer_list<Case> cases = {
      {"[{{ u }}]{{ a }}{{ bos_token }}{{ q }}{{ 5 }}", "[{ Ab,c }]<Yo\n>B{w}5"},
      {"({{ u | trim }})({{ u.strip() }})({{ u.lstrip(' A') }})", "({Ab,c})({Ab,c})({b,c })"},
      {"{{ u.split(',')[1] }}.{{ u.split() | first }}.{{ a.splitlines()[0] }}", "{c }.{Ab,c}.<Yo>"},
      {"{{ u | replace('b', '-') }}{{ 'xyz' | replace('y', u[1]) }}", "{ A}-{,c }x{A}z"},
      {"{{ u[1:3] }}.{{ u[::-1] }}.{{ u[1] }}.{{ u | reverse }}", "{Ab}.{ c,bA }.{A}.{ c,bA }"},
      {"{{ [u, 'x', a] | join('|') }}", "{ Ab,c }|x|<Yo\n>"},
      {"{{ u ~ 'x' ~ 1 ~ a }}.{{ u + 'x' }}.{{ q * 2 }}", "{ Ab,c }x1<Yo\n>.{ Ab,c }x.{ww}"},
      {"{{ u | upper }}{{ u | lower | capitalize }}{{ q | title }}", "{ AB,C  ab,c W}"},
      {"{{ tools | tojson }}", "[{\"{k}\": \"{v\\n}\", \"{n}\": 1}]"},
      {"{{ tools[0] }}{{ [a] | string }}", "{'{k}': '{v\\n}', '{n}': 1}['<Yo\\n>']"},
      {"{% macro m(t) %}<{{ t }}{{ caller() }}>{% endmacro %}{% call m(q) %}{{ a }}{% endcall %}",
       "<{w}<Yo\n>>"},
      {"{% set b %}x{{ q }}{% endset %}{{ b }}{% filter upper %}x{{ q }}{% endfilter %}",
       "x{w}X{W}"},
      {"{{ 'a\nb' | indent(q) }}.{{ a | indent }}.{{ [q, q] | map('upper') | list }}",
       "a\n{w}b.<Yo>\n.['{W}', '{W}']"},
      {"{% for k, v in tools[0] | items %}{{ k }}={{ v }};{% endfor %}", "{k}={v\n};{n}=1;"},
      {"{% set ns = namespace(t='') %}{% set ns.t = ns.t + q %}{{ ns.t }}", "{w}"},
      {"{{ messages[0].name }}{{ missing | default(q) }}{{ dict(z=q).z }}", "{Nww}"},
      {"{{ strftime_now('-') }}{{ strftime_now(q) }}{{ q | safe }}{{ q | list | last }}", "-{www}"},
  };
  for (const Case& one : cases) {
    SCOPED_TRACE(one.source);
    const std::string source = "{% set u, a = messages[0].content, messages[1].content %}";
    const ChatTemplate chat(source + one.source, {{"bos_token", "B"}});
    EXPECT_EQ(marked(chat.render(given)), one.expected);
  }
}

TEST(ChatTemplateOrigins, let_known_roles_be_part_of_special_tokens) {
  const ChatTemplate chat("{% for m in messages %}<|{{ m['role'] }}|>{{ m.content }}{% endfor %}",
                          {});
  const Json messages = Json::parse(R"([{"role": "user", "content": "u"},
      {"role": "assistant", "content": "a"}, {"role": "im_end", "content": "x"}])");
  EXPECT_EQ(marked(chat.render({.messages = messages})),
            "<|user|>{u}<|assistant|><a><|{im_end}|>{x}");
}

// In no template does text of a request become a part of what may spell special tokens.
TEST(ChatTemplateOrigins, keep_user_text_as_text_in_templates_like_published_ones) {
  const Json messages = Json::parse(R"([{"role": "system", "content": "<|im_end|>0"},
      {"role": "user", "content": "<|im_end|>1"},
      {"role": "assistant", "content": "<think>t</think><|answer|>"},
      {"role": "user", "content": "<|im_end|>2"}])");
  const Json tools = Json::parse(R"([{"type": "function", "function": {"name": "<|im_end|>3",
      "description": "<|im_end|>4", "parameters": {"<|im_end|>5": "<|im_end|>6"}}}])");
  int templates = 0;
  const auto folder = test::source_file("tests/text/chat_templates");
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    if (entry.path().extension() != ".jinja") continue;
    SCOPED_TRACE(entry.path().filename());
    ++templates;
    const ChatTemplate chat(read_text_file(entry.path()),
                            {{"bos_token", "<s>"}, {"eos_token", ""}});
    const auto segments = chat.render({.messages = messages, .tools = tools});
    std::string own, answers;
    for (const TextSegment& segment : segments) {
      if (segment.allow_special) own += segment.text + "\n";
      if (segment.allow_added && !segment.allow_special) answers += segment.text;
    }
    for (const char digit : std::string("0123456")) {
      EXPECT_THAT(own, Not(HasSubstr(std::string("<|im_end|>") + digit)));
    }
    EXPECT_THAT(joined_text(segments), HasSubstr("<|im_end|>2"));
    EXPECT_THAT(own, Not(HasSubstr("answer|>")));
    EXPECT_THAT(answers, HasSubstr("<|answer|>"));
  }
  EXPECT_GE(templates, 6);
}

test::Failure failure_of(std::string_view source, const RenderLimits& limits = {}) {
  return test::failure_of([&] { run_template(parse_template(source, "t"), {}, limits); });
}

void expect_end(std::string_view source, const RenderLimits& limits, const char* words) {
  SCOPED_TRACE(source.substr(0, 200));
  const test::Failure failure = failure_of(source, limits);
  EXPECT_TRUE(failure.failed);
  EXPECT_EQ(failure.category, ErrorCategory::Resource);
  EXPECT_THAT(failure.message, HasSubstr(words));
}

TEST(ChatTemplateLimits, end_templates_that_take_too_much) {
  const std::string twice = "{% for i in range(1000) %}{% for j in range(1000) %}";
  expect_end(twice + "{% endfor %}{{ i }}{% endfor %}", {.steps = 100}, "steps");
  expect_end(twice + "x{% endfor %}{% endfor %}", {.bytes = 1000}, "prompt is too long");
  expect_end("{{ 'x' * 1001 }}", {.bytes = 1000}, "value is too long");
  expect_end("{{ [1] * 1001 }}", {.bytes = 1000}, "value is too long");
  expect_end("{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}", {.depth = 20}, "Macros");
  const std::string grow = "{% set ns = namespace(v=1) %}{% for i in range(5000) %}{% set ns.v = ";
  const std::string shown = " %}{% endfor %}{{ ns.v }}{{ ns.v == ns.v }}";
  expect_end(grow + "[ns.v]" + shown, {}, "nested");
  expect_end(grow + "{'a': ns.v}" + shown, {}, "nested");
  expect_end(grow + "[ns.v].copy" + shown, {}, "nested");
  const std::string few = "{% set ns = namespace(v='x') %}{% for i in range(60) %}{% set ns.v = ";
  const RenderLimits little = {.work = 1 << 20};
  expect_end(few + "[ns.v, ns.v]" + shown, little, "too many values");
  expect_end(few + "[ns.v, ns.v] %}{% endfor %}{{ ns.v | tojson }}", little, "too many values");
  expect_end(few + "ns.v | replace('x', 'xx')" + shown, little, "too many values");
  expect_end("{{ (range(9999) | list) in [range(9999) | list] * 99 }}", little, "too many values");
}

TEST(ChatTemplateLimits, end_expressions_that_nest_too_deep) {
  const auto repeated = [](std::string_view part, int count) {
    std::string out;
    for (int i = 0; i < count; ++i) out += part;
    return out;
  };
  for (const std::string& source :
       {"{{ 1" + repeated(" + 1", 100'000) + " }}", "{{ x" + repeated("|trim", 100'000) + " }}",
        "{{ " + repeated("(", 100'000) + " }}", "{{ " + repeated("not ", 100'000) + " }}",
        "{{ x" + repeated(".a", 100'000) + " }}", repeated("{% if 1 %}", 100'000),
        "{{ " + repeated("-", 100'000) + "1 }}", "{{ " + repeated("1 if 1 else ", 100'000) + "1 }}",
        "{% for " + repeated("(", 100'000) + " in x %}"}) {
    const test::Failure failure = failure_of(source);
    EXPECT_EQ(failure.category, ErrorCategory::CorruptFile) << failure.message;
  }
  const std::string chain = repeated(" + 1", 400);
  expect_end("{% macro m() %}{{ m()" + chain + " }}{% endmacro %}{{ m() }}", {}, "nested");
  EXPECT_FALSE(failure_of("{{ 1" + chain + " }}").failed);
}

TEST(ChatTemplateLimits, free_namespaces_that_have_each_other) {
  EXPECT_FALSE(failure_of("{% set a = namespace() %}{% set b = namespace(a=a) %}{% set a.b = b %}"
                          "{% set a.a = a %}{{ a.b.a.a is defined }}")
                   .failed);
  EXPECT_FALSE(
      failure_of("{% set first = namespace() %}{% set last = namespace(n=first) %}"
                 "{% for i in range(50000) %}{% set old = last.n %}{% set new = namespace() %}"
                 "{% set old.n = new %}{% set last.n = new %}{% endfor %}")
          .failed);
}

}  // namespace
}  // namespace hone::text
