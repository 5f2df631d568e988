// SPDX-License-Identifier: Apache-2.0
// Answers as models of each family write them, cut everywhere.
#include "hone/server/tools/output_splitter.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <string>
#include <string_view>
#include <vector>

#include "hone/core/check.h"
#include "hone/core/file/json_io.h"
#include "hone/core/philox.h"

namespace hone::server {
namespace {

using testing::ElementsAre;
using Shown = std::vector<std::string>;

// Marks of the formats in templates.
constexpr std::string_view kHermes = "<tool_call>", kTokens = "[ARGS]", kMistral = "[TOOL_CALLS]",
                           kLlama = "<|start_header_id|>", kGemma = "<start_of_turn>";

enum class Thinks { No, May, IsOpen };

struct SplitStream {
  std::string_view mark;
  std::string text;
  Shown want;
  Thinks thinks = Thinks::No;
};

OutputSyntax syntax_of(std::string_view mark, Thinks thinks = Thinks::No) {
  OutputSyntax syntax{.format = &find_tool_format(mark),
                      .tools = {"f", "get", "get_weather", "say \"hi\"", "größe"}};
  if (thinks == Thinks::No) return syntax;
  syntax.think_begin = "<think>";
  syntax.think_end = "</think>";
  syntax.starts_thinking = thinks == Thinks::IsOpen;
  return syntax;
}

std::string shown(const OutputPiece& piece) {
  switch (piece.kind) {
    case OutputPiece::Kind::Reasoning:
      return "reasoning " + piece.text;
    case OutputPiece::Kind::Content:
      return "content " + piece.text;
    case OutputPiece::Kind::Call:
      return concat("call ", piece.call, " ", piece.text);
    case OutputPiece::Kind::Arguments:
      break;
  }
  return concat("arguments ", piece.call, " ", piece.text);
}

// What a text is split into if it comes in parts that end at these places. Pieces of one kind are
// joined.
Shown split_at(const OutputSyntax& syntax, std::string_view text,
               const std::vector<std::size_t>& cuts = {}) {
  OutputSplitter splitter(syntax);
  std::vector<OutputPiece> joined;
  Index calls = 0;
  const auto take = [&](const std::vector<OutputPiece>& pieces) {
    for (const OutputPiece& piece : pieces) {
      EXPECT_FALSE(piece.text.empty());
      calls += piece.kind == OutputPiece::Kind::Call;
      const bool joins = !joined.empty() && piece.kind != OutputPiece::Kind::Call &&
                         joined.back().kind == piece.kind && joined.back().call == piece.call;
      if (joins) {
        joined.back().text += piece.text;
      } else {
        joined.push_back(piece);
      }
    }
    EXPECT_EQ(splitter.calls(), calls);
  };
  std::size_t begin = 0;
  for (const std::size_t cut : cuts) {
    take(splitter.push(text.substr(begin, cut - begin)));
    begin = cut;
  }
  take(splitter.push(text.substr(begin)));
  take(splitter.finish());
  Shown out;
  for (const OutputPiece& piece : joined) out.push_back(shown(piece));
  return out;
}

std::vector<std::size_t> every_byte(std::size_t size) {
  std::vector<std::size_t> cuts(size);
  for (std::size_t i = 0; i < size; ++i) cuts[i] = i + 1;
  return cuts;
}

std::vector<std::size_t> random_cuts(std::size_t size, PhiloxStream& random) {
  std::vector<std::size_t> cuts(1 + random.below(12));
  for (std::size_t& cut : cuts) cut = random.below(static_cast<std::uint32_t>(size) + 1);
  std::ranges::sort(cuts);
  return cuts;
}

std::string hermes_call(std::string_view name, std::string_view arguments) {
  return concat("<tool_call>\n{\"name\": ", Json(std::string(name)).dump(),
                ", \"arguments\": ", arguments, "}\n</tool_call>");
}

std::string llama_call(std::string_view name, std::string_view arguments) {
  return concat("{\"name\": \"", name, "\", \"parameters\": ", arguments, "}");
}

// A text that is content as it stands.
SplitStream plain(std::string_view mark, const std::string& text) {
  return {mark, text, {"content " + text}};
}

std::vector<SplitStream> calls_of_families() {
  const std::string one = R"({"city": "Bath"})", two = R"({"a": [1, {"b": null}]})";
  return {
      {kHermes, hermes_call("f", one), {"call 0 f", "arguments 0 " + one}},
      {kHermes,
       hermes_call("f", one) + "\n" + hermes_call("get_weather", two),
       {"call 0 f", "arguments 0 " + one, "call 1 get_weather", "arguments 1 " + two}},
      {kHermes,
       hermes_call("get", one) + hermes_call("get", one) + "\n\n" + hermes_call("get", two),
       {"call 0 get", "arguments 0 " + one, "call 1 get", "arguments 1 " + one, "call 2 get",
        "arguments 2 " + two}},
      {kHermes,
       "Let me look.\n" + hermes_call("f", one),
       {"content Let me look.", "call 0 f", "arguments 0 " + one}},
      {kHermes,
       " I use it: " + hermes_call("f", one) + "Done.",
       {"content  I use it:", "call 0 f", "arguments 0 " + one, "content Done."}},
      {kHermes, "\n\n" + hermes_call("f", "{}"), {"call 0 f", "arguments 0 {}"}},
      {kHermes, hermes_call("say \"hi\"", "{}"), {"call 0 say \"hi\"", "arguments 0 {}"}},
      {kHermes,
       hermes_call("größe", R"({"ä": "😀"})"),
       {"call 0 größe", "arguments 0 {\"ä\": \"😀\"}"}},
      {kMistral,
       R"([TOOL_CALLS] [{"name": "f", "arguments": {"city": "Bath"}}])",
       {"call 0 f", "arguments 0 " + one}},
      {kMistral,
       R"([TOOL_CALLS][{"name": "f", "arguments": {"city": "Bath"}}])",
       {"call 0 f", "arguments 0 " + one}},
      {kMistral,
       R"([TOOL_CALLS] [{"name": "get_weather", "arguments": {"city": "Bath"}}, )"
       R"({"name": "f", "arguments": {"a": [1, {"b": null}]}}, {"name": "get", "arguments": {}}])",
       {"call 0 get_weather", "arguments 0 " + one, "call 1 f", "arguments 1 " + two, "call 2 get",
        "arguments 2 {}"}},
      {kMistral,
       "One moment.[TOOL_CALLS] [{\"name\": \"f\", \"arguments\": {}}]",
       {"content One moment.", "call 0 f", "arguments 0 {}"}},
      {kTokens, "[TOOL_CALLS]f[ARGS]" + one, {"call 0 f", "arguments 0 " + one}},
      {kTokens,
       "[TOOL_CALLS]get[ARGS]" + one + "[TOOL_CALLS]get_weather[ARGS]" + two,
       {"call 0 get", "arguments 0 " + one, "call 1 get_weather", "arguments 1 " + two}},
      {kTokens,
       "Yes.[TOOL_CALLS]say \"hi\"[ARGS]{}",
       {"content Yes.", "call 0 say \"hi\"", "arguments 0 {}"}},
      {kLlama, llama_call("get_weather", one), {"call 0 get_weather", "arguments 0 " + one}},
      {kLlama, "\n " + llama_call("f", two), {"call 0 f", "arguments 0 " + two}},
      {kGemma, llama_call("f", one), {"call 0 f", "arguments 0 " + one}},
  };
}

std::vector<SplitStream> reasoning_streams() {
  const std::string call = hermes_call("f", "{}");
  return {
      {kHermes,
       "<think>\nIs it\n\nso?\n</think>\n\nYes. ",
       {"reasoning Is it\n\nso?", "content Yes. "},
       Thinks::May},
      {kHermes, "\n <think>a</think>b", {"reasoning a", "content b"}, Thinks::May},
      {kHermes, "It is.\n</think>\nYes.", {"reasoning It is.", "content Yes."}, Thinks::IsOpen},
      {kHermes, "<think>\n</think>\n\nYes.", {"content Yes."}, Thinks::May},
      {kHermes,
       "<think>a</think>\n\n" + call,
       {"reasoning a", "call 0 f", "arguments 0 {}"},
       Thinks::May},
      {kHermes,
       "a</think>So:\n" + call,
       {"reasoning a", "content So:", "call 0 f", "arguments 0 {}"},
       Thinks::IsOpen},
      {kLlama,
       "<think>a</think>\n" + llama_call("f", "{}"),
       {"reasoning a", "call 0 f", "arguments 0 {}"},
       Thinks::May},
      {kTokens,
       "<think>a</think>[TOOL_CALLS]f[ARGS]{}",
       {"reasoning a", "call 0 f", "arguments 0 {}"},
       Thinks::May},
      {kHermes,
       "<think>I may write\n" + call + "\n</think>No.",
       {"reasoning I may write\n" + call, "content No."},
       Thinks::May},
      {kHermes,
       "<think>{\"name\": \"f\", \"arguments\": {}}</think>{\"name\": \"f\", \"arguments\": {}}",
       {"reasoning {\"name\": \"f\", \"arguments\": {}}", "call 0 f", "arguments 0 {}"},
       Thinks::May},
      {kHermes, "No. <think>a</think>", {"content No. <think>a</think>"}, Thinks::May},
      {kHermes, "<thinking>a", {"content <thinking>a"}, Thinks::May},
      {kHermes,
       hermes_call("f", R"({"a": "</think>"})"),
       {"call 0 f", "arguments 0 {\"a\": \"</think>\"}"},
       Thinks::May},
      {kHermes,
       "a < b </thin k></think>c",
       {"reasoning a < b </thin k>", "content c"},
       Thinks::IsOpen},
  };
}

// What an answer is that its length has cut.
std::vector<SplitStream> cut_streams() {
  const std::string head = "<tool_call>\n{\"name\": \"f\", \"arguments\": ";
  return {
      {kHermes, "", {}},
      {kHermes, "", {}, Thinks::IsOpen},
      plain(kHermes, " \n"),
      {kHermes, "\n<thi", {"content \n<thi"}, Thinks::May},
      {kHermes, "<think>", {}, Thinks::May},
      {kHermes, "<think>It", {"reasoning It"}, Thinks::May},
      {kHermes, "It</thi", {"reasoning It</thi"}, Thinks::IsOpen},
      {kHermes, "It</think>", {"reasoning It"}, Thinks::IsOpen},
      {kHermes, "It</think>\n<tool", {"reasoning It", "content <tool"}, Thinks::IsOpen},
      plain(kHermes, "Yes. <tool_cal"),
      plain(kHermes, "<tool_call"),
      plain(kHermes, "<tool_call>"),
      plain(kHermes, "<tool_call>\n{\"na"),
      plain(kHermes, "<tool_call>\n{\"name\": \"get_wea"),
      {kHermes, head, {"call 0 f"}},
      {kHermes, head + R"({"a": "x\)", {"call 0 f", R"(arguments 0 {"a": "x\)"}},
      {kHermes, head + R"({"a": 1)", {"call 0 f", R"(arguments 0 {"a": 1)"}},
      {kHermes, head + "{}", {"call 0 f", "arguments 0 {}"}},
      {kHermes, head + "{}}\n</tool_", {"call 0 f", "arguments 0 {}"}},
      {kHermes, head + "{}}\n</tool_call>\n", {"call 0 f", "arguments 0 {}"}},
      plain(kMistral, "[TOOL_CALLS"),
      plain(kMistral, "[TOOL_CALLS]  "),
      plain(kMistral, "[TOOL_CALLS] [{\"name\": \"g"),
      {kMistral,
       "[TOOL_CALLS] [{\"name\": \"f\", \"arguments\": [\"",
       {"call 0 f", "arguments 0 [\""}},
      {kMistral,
       "[TOOL_CALLS] [{\"name\": \"f\", \"arguments\": {}}",
       {"call 0 f", "arguments 0 {}"}},
      plain(kTokens, "[TOOL_CALLS]get_weather"),
      {kTokens, "[TOOL_CALLS]get_weather[ARGS]", {"call 0 get_weather"}},
      {kTokens, "[TOOL_CALLS]get_weather[ARGS]{\"", {"call 0 get_weather", "arguments 0 {\""}},
      plain(kLlama, "{\"nam"),
      plain(kLlama, "{\"name\": \"get"),
      {kLlama,
       "{\"name\": \"get\", \"parameters\": {\"a\": {",
       {"call 0 get", "arguments 0 {\"a\": {"}},
      plain(kHermes, "{\"name\": \"f\", \"arguments\": {\"a\": 1"),
      plain(kHermes, "```json\n{\"name\": \"f\","),
      plain(kHermes, "``"),
  };
}

// What resembles a call, but is none.
std::vector<SplitStream> resembling_streams() {
  std::vector<SplitStream> out = {
      plain(kHermes, hermes_call("unknown", "{}")),
      plain(kHermes, hermes_call("get_", "{}") + "\n"),
      plain(kHermes, "<tool_call>{\"name\": \"f\", \"arguments\": {}}</tool_call>"),
      plain(kHermes, "<tool_call>\n{\"tool\": \"f\", \"arguments\": {}}\n</tool_call>"),
      plain(kHermes, "<tool_call>\n{\"name\": \"f\", \"parameters\": {}}\n</tool_call>"),
      plain(kHermes, "a <tool_call b"),
      plain(kHermes, "<<<tool_call<tool_call"),
      plain(kHermes, "</tool_call>"),
      plain(kHermes, "  {\"name\": \"Ada\", \"age\": 36}\n"),
      plain(kHermes, "{\"name\": \"f\"}"),
      plain(kHermes, "{\"name\": \"f\", \"arguments\": \"{}\"}"),
      plain(kHermes, "{\"name\": \"f\", \"arguments\": {}} is a call."),
      plain(kHermes, "{\"name\": \"f\", \"arguments\": {},}"),
      plain(kHermes,
            "[{\"name\": \"f\", \"arguments\": {}}, {\"name\": \"g\", \"arguments\": {}}]"),
      plain(kHermes, "[]"),
      plain(kHermes, "```python\nprint(1)\n```\n"),
      plain(kHermes, "```json\n{\"name\": \"Ada\"}\n```"),
      plain(kHermes, "Here: {\"name\": \"f\", \"arguments\": {}}"),
      plain(kMistral, "[TOOL_CALLS] {\"name\": \"f\", \"arguments\": {}}"),
      plain(kMistral, "[TOOL_CALLS]\n [{\"name\": \"g\", \"arguments\": {}}]"),
      plain(kMistral, "[TOOL_C] [1, 2] [TOOL_CALLS"),
      plain(kTokens, "[TOOL_CALLS]g[ARGS]{}"),
      plain(kTokens, "[TOOL_CALLS]get[ARG]{}"),
      plain(kTokens, "f[ARGS]{}"),
      plain(kLlama, "{\"name\": \"g\", \"parameters\": {}}"),
      plain(kLlama, "Call it: " + llama_call("f", "{}")),
      plain(kGemma, "{\"name\": \"Ada\", \"age\": 36}"),
  };
  // A broken call does not hide the one that follows.
  out.push_back({kHermes,
                 "<tool_call> " + hermes_call("f", "{}"),
                 {"content <tool_call>", "call 0 f", "arguments 0 {}"}});
  return out;
}

// Calls without the marks of a format, in any format.
std::vector<SplitStream> bare_streams() {
  const Shown f = {"call 0 f", "arguments 0 {\"a\":1}"};
  const std::string call = R"({"name": "f", "arguments": {"a": 1}})";
  return {
      {kHermes, call, f},
      {kHermes, "\n" + call + "\n", f},
      {kHermes, R"({"name":"f","parameters":{"a":1}})", f},
      {kHermes, "{\n  \"name\": \"f\",\n  \"arguments\": {\n    \"a\": 1\n  }\n}", f},
      {kHermes, R"({"type": "function", "name": "f", "parameters": {"a": 1}})", f},
      {kHermes, "```json\n" + call + "\n```", f},
      {kHermes, "```\n" + call + "\n```\n", f},
      {kHermes, "<tools>\n" + call + "\n</tools>", f},
      {kHermes, "[" + call + "]", f},
      {kMistral, "```json\n" + call + "```", f},
      {kTokens, call, f},
      {kLlama, R"({"name":"f","parameters":{"a":1}})", f},
      {kHermes,
       "[" + call + R"(, {"name": "get_weather", "arguments": {}}])",
       {"call 0 f", "arguments 0 {\"a\":1}", "call 1 get_weather", "arguments 1 {}"}},
  };
}

std::vector<SplitStream> argument_streams() {
  std::vector<SplitStream> out;
  for (const std::string arguments :
       {R"({"a": "}]{[", "b": ", \"c\": "})", R"({"a\"}": "\\", "b": "\\\"}"})",
        R"({"a": "\n</tool_call>", "b": "[TOOL_CALLS]"})",
        R"({"a": [[], [{}], "]"], "b": {"}": 1}})", R"(["{", "\u007d", {"a": -1.5e3}])",
        "{\n \"a\": 1 ,\t\"b\": 2\n}", R"("} \" ]")", "12", "-0.5e-3", "true", "null"}) {
    const Shown want = {"call 0 get", "arguments 0 " + arguments};
    out.push_back({kHermes, hermes_call("get", arguments), want});
    out.push_back({kLlama, llama_call("get", arguments), want});
    out.push_back({kGemma, llama_call("get", arguments), want});
    out.push_back({kTokens, "[TOOL_CALLS]get[ARGS]" + arguments, want});
    out.push_back({kMistral,
                   concat("[TOOL_CALLS] [{\"name\": \"get\", \"arguments\": ", arguments,
                          "}, {\"name\": \"f\", \"arguments\": ", arguments, "}]"),
                   {want[0], want[1], "call 1 f", "arguments 1 " + arguments}});
  }
  return out;
}

std::vector<SplitStream> all_streams() {
  std::vector<SplitStream> out;
  for (const auto& streams : {calls_of_families(), reasoning_streams(), cut_streams(),
                              resembling_streams(), bare_streams(), argument_streams()}) {
    out.insert(out.end(), streams.begin(), streams.end());
  }
  return out;
}

void expect_split(const std::vector<SplitStream>& streams) {
  for (const SplitStream& stream : streams) {
    EXPECT_EQ(split_at(syntax_of(stream.mark, stream.thinks), stream.text), stream.want)
        << stream.mark << ": " << stream.text;
  }
}

TEST(OutputSplitter, finds_the_calls_of_each_family) { expect_split(calls_of_families()); }

TEST(OutputSplitter, keeps_reasoning_apart) { expect_split(reasoning_streams()); }

TEST(OutputSplitter, gives_out_what_the_length_has_left) { expect_split(cut_streams()); }

TEST(OutputSplitter, leaves_what_only_resembles_a_call) { expect_split(resembling_streams()); }

TEST(OutputSplitter, finds_calls_without_the_marks_of_a_format) { expect_split(bare_streams()); }

TEST(OutputSplitter, ends_arguments_where_their_json_ends) { expect_split(argument_streams()); }

TEST(OutputSplitter, splits_alike_wherever_the_text_is_cut) {
  PhiloxStream random(3);
  for (const SplitStream& stream : all_streams()) {
    SCOPED_TRACE(stream.text);
    const OutputSyntax syntax = syntax_of(stream.mark, stream.thinks);
    const std::size_t size = stream.text.size();
    const Shown want = split_at(syntax, stream.text);
    for (std::size_t cut = 0; cut <= size; ++cut) {
      ASSERT_EQ(split_at(syntax, stream.text, {cut}), want) << "at " << cut;
    }
    ASSERT_EQ(split_at(syntax, stream.text, every_byte(size)), want) << "byte by byte";
    for (int run = 0; run < 200; ++run) {
      const std::vector<std::size_t> cuts = random_cuts(size, random);
      ASSERT_EQ(split_at(syntax, stream.text, cuts), want) << testing::PrintToString(cuts);
    }
  }
}

// Any sequence of the parts that texts of all families are made of.
TEST(OutputSplitter, splits_random_parts_alike_wherever_they_are_cut) {
  constexpr std::string_view kParts[] = {"<tool_call>",
                                         "</tool_call>",
                                         "[TOOL_CALLS]",
                                         "[ARGS]",
                                         "{\"name\": ",
                                         "\"f\"",
                                         "f",
                                         "get",
                                         "\n",
                                         ", \"arguments\": ",
                                         "{\"a\": 1}",
                                         "}",
                                         "[",
                                         "]",
                                         ", \"parameters\": ",
                                         ", ",
                                         " ",
                                         "<think>",
                                         "</think>",
                                         "```json",
                                         "```",
                                         "<",
                                         "\\",
                                         "\"",
                                         "12",
                                         "<tools>",
                                         "{}",
                                         "Größe",
                                         "{\"name\":\"f\",\"arguments\":{}}"};
  PhiloxStream random(4);
  for (int run = 0; run < 3000; ++run) {
    constexpr std::string_view kMarks[] = {kHermes, kTokens, kMistral, kLlama, kGemma};
    const OutputSyntax syntax =
        syntax_of(kMarks[random.below(5)], static_cast<Thinks>(random.below(3)));
    std::string text;
    for (std::uint32_t i = 1 + random.below(9); i > 0; --i) {
      text += kParts[random.below(static_cast<std::uint32_t>(std::size(kParts)))];
    }
    const Shown want = split_at(syntax, text);
    ASSERT_EQ(split_at(syntax, text, every_byte(text.size())), want) << text;
    for (int i = 0; i < 5; ++i) {
      const std::vector<std::size_t> cuts = random_cuts(text.size(), random);
      ASSERT_EQ(split_at(syntax, text, cuts), want) << text << testing::PrintToString(cuts);
    }
  }
}

// Some models open again what the prompt has opened.
TEST(OutputSplitter, a_tag_that_the_prompt_has_opened_may_come_again) {
  const OutputSyntax syntax = syntax_of(kHermes, Thinks::IsOpen);
  const std::string text = "\n<think>\nIt is.</think>Yes.";
  for (std::size_t cut = 0; cut <= text.size(); ++cut) {
    EXPECT_THAT(split_at(syntax, text, {cut}), ElementsAre("reasoning It is.", "content Yes."))
        << "at " << cut;
  }
  EXPECT_THAT(split_at(syntax, text, every_byte(text.size())),
              ElementsAre("reasoning It is.", "content Yes."));
}

// The calls of a text that is cut anywhere are those of the whole text, up to there.
TEST(OutputSplitter, a_text_that_is_cut_has_the_beginning_of_each_call) {
  const std::string text = "Well.\n" + hermes_call("f", R"({"a": "b\"}"})") + "\n" +
                           hermes_call("get_weather", R"([1, 2])");
  const OutputSyntax syntax = syntax_of(kHermes);
  const Shown whole = split_at(syntax, text);
  ASSERT_THAT(whole, ElementsAre("content Well.", "call 0 f", R"(arguments 0 {"a": "b\"}"})",
                                 "call 1 get_weather", "arguments 1 [1, 2]"));
  std::size_t most = 0;
  for (std::size_t size = 0; size <= text.size(); ++size) {
    Shown calls;
    for (const std::string& piece : split_at(syntax, text.substr(0, size))) {
      if (!piece.starts_with("content ")) calls.push_back(piece);
    }
    EXPECT_GE(calls.size(), most) << "a longer text has lost a piece at " << size;
    most = calls.size();
    ASSERT_LE(calls.size(), 4U);
    for (std::size_t i = 0; i < calls.size(); ++i) {
      EXPECT_TRUE(whole[i + 1].starts_with(calls[i])) << calls[i];
      if (i + 1 < calls.size()) {
        EXPECT_EQ(calls[i], whole[i + 1]);
      }
    }
  }
  EXPECT_EQ(most, 4U);
}

TEST(OutputSplitter, a_text_without_tools_is_content) {
  const std::string text = " " + hermes_call("f", "{}") + "\n[TOOL_CALLS]f[ARGS]{} \n";
  EXPECT_THAT(split_at({}, text), ElementsAre("content " + text));
  EXPECT_THAT(split_at({.format = &find_tool_format(kHermes)}, text),
              ElementsAre("content " + text));
  const OutputSyntax thinks{.think_begin = "<think>", .think_end = "</think>"};
  for (const auto& cuts : {std::vector<std::size_t>{}, every_byte(text.size() + 16)}) {
    EXPECT_THAT(split_at(thinks, "<think>a</think>" + text, cuts),
                ElementsAre("reasoning a", "content " + text.substr(1)));
  }
}

TEST(OutputSplitter, takes_long_arguments) {
  PhiloxStream random(5);
  constexpr std::string_view kUnits[] = {"\\\"", "\\\\", "{", "}", "[", "]",   "\\n",
                                         ",",    "é",    "<", "`", "a", " b ", "\\u007d"};
  std::string value;
  while (value.size() < 65536)
    value += kUnits[random.below(static_cast<std::uint32_t>(std::size(kUnits)))];
  const std::string arguments = concat("{\"text\": \"", value, "\", \"n\": 7}");
  ASSERT_NO_THROW(parse_json(arguments, "the test"));
  const std::string bare = concat("{\"name\": \"f\", \"arguments\": ", arguments, "}");
  const std::string kept = parse_json(arguments, "the test").dump();
  const std::vector<SplitStream> streams = {
      {kHermes, hermes_call("f", arguments), {"call 0 f", "arguments 0 " + arguments}},
      {kTokens, "[TOOL_CALLS]f[ARGS]" + arguments, {"call 0 f", "arguments 0 " + arguments}},
      {kHermes, bare, {"call 0 f", "arguments 0 " + kept}}};
  for (const SplitStream& stream : streams) {
    const OutputSyntax syntax = syntax_of(stream.mark);
    // Not EXPECT_EQ, which would print and compare line by line what differs.
    EXPECT_TRUE(split_at(syntax, stream.text) == stream.want) << stream.mark;
    EXPECT_TRUE(split_at(syntax, stream.text, every_byte(stream.text.size())) == stream.want);
    for (int run = 0; run < 200; ++run) {
      const std::vector<std::size_t> cuts = random_cuts(stream.text.size(), random);
      ASSERT_TRUE(split_at(syntax, stream.text, cuts) == stream.want)
          << testing::PrintToString(cuts);
    }
  }
}

TEST(OutputSplitter, takes_arrays_that_are_nested_deeply) {
  const std::string open(100'000, '['), close(100'000, ']');
  for (const std::string_view mark : {kHermes, kLlama}) {
    const bool is_hermes = mark == kHermes;
    const auto call = [&](const std::string& arguments) {
      return is_hermes ? hermes_call("f", arguments) : llama_call("f", arguments);
    };
    EXPECT_TRUE((split_at(syntax_of(mark), call(open + close)) ==
                 Shown{"call 0 f", "arguments 0 " + open + close}));
    const std::string cut = call(open).substr(0, call(open).rfind('[') + 1);
    EXPECT_TRUE((split_at(syntax_of(mark), cut) == Shown{"call 0 f", "arguments 0 " + open}));
  }
  // Calls without marks are JSON that is parsed, and this is none that the parser takes.
  for (const std::string& text :
       {concat("{\"name\": \"f\", \"arguments\": {\"a\": ", open, close, "}}"),
        concat("{\"name\": \"f\", \"arguments\": {\"a\": ", open), open}) {
    EXPECT_TRUE((split_at(syntax_of(kHermes), text) == Shown{"content " + text}));
  }
}

}  // namespace
}  // namespace hone::server
