// SPDX-License-Identifier: Apache-2.0
// Mutated answers with calls of tools, in all formats: the pieces are the same wherever the text is
// cut, and account for every byte of it. Mutated templates have a format.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "hone/core/check.h"
#include "hone/core/file/file_io.h"
#include "hone/core/file/json_io.h"
#include "hone/server/tools/chat_style.h"
#include "hone/server/tools/output_splitter.h"
#include "tests/fuzz/mutation_support.h"
#include "tests/support/test_data.h"

namespace hone::server {
namespace {

using hone::test::draw_below;

constexpr std::string_view kWhiteSpace = " \n\t\r";
constexpr std::string_view kThinkBegin = "<think>", kThinkEnd = "</think>";

enum class Thought { None, MayCome, IsOpen };

struct CallSeeds {
  const char* name;
  std::string_view mark;  // of the templates of the family
  std::vector<std::string> texts;
};

const std::vector<CallSeeds>& call_seeds() {
  static const std::vector<CallSeeds> seeds = {
      {"hermes",
       "<tool_call>",
       {"<tool_call>\n{\"name\": \"f\", \"arguments\": {\"city\": \"Bath\"}}\n</tool_call>",
        "Let me look.\n<tool_call>\n{\"name\": \"get\", \"arguments\": {}}\n</tool_call>\n"
        "<tool_call>\n{\"name\": \"get_weather\", \"arguments\": {\"a\": [1, \"}\\\"\"]}}\n"
        "</tool_call>",
        "\n<tool_call>\n{\"name\": \"say \\\"hi\\\"\", \"arguments\": [\"]\"]}\n</tool_call>Done. ",
        "a <tool_call> <tool_call>\n{\"name\": \"größe\", \"arguments\": -1.5e3}\n</tool_call>"}},
      {"mistral_tokens",
       "[ARGS]",
       {"[TOOL_CALLS]f[ARGS]{\"city\": \"Bath\"}",
        "Yes. [TOOL_CALLS]get[ARGS]{\"a\": [[], \"[ARGS]\"]}[TOOL_CALLS]get_weather[ARGS]{}",
        "[TOOL_CALLS]say \"hi\"[ARGS]null \n"}},
      {"mistral",
       "[TOOL_CALLS]",
       {"[TOOL_CALLS] [{\"name\": \"f\", \"arguments\": {\"city\": \"Bath\"}}]",
        "One.[TOOL_CALLS][{\"name\": \"get\", \"arguments\": {\"a\": \"\\\\\"}}, {\"name\": "
        "\"get_weather\", \"arguments\": [1, {}]}, {\"name\": \"f\", \"arguments\": {}}] Well.",
        "[TOOL_CALLS]\n [{\"name\": \"g\", \"arguments\": {}}]"}},
      {"llama",
       "<|start_header_id|>",
       {"{\"name\": \"get_weather\", \"parameters\": {\"city\": \"Bath\"}}",
        "\n {\"name\": \"f\", \"parameters\": {\"a\": [1, {\"b\": null}]}}",
        "Call it: {\"name\": \"f\", \"parameters\": {}}"}},
      {"gemma",
       "<start_of_turn>",
       {"{\"name\": \"f\", \"parameters\": {\"city\": \"Bath\"}}",
        "{\"name\": \"Ada\", \"age\": 36}"}}};
  return seeds;
}

// Calls without the marks of a format.
const std::vector<std::string>& bare_call_texts() {
  static const std::vector<std::string> texts = {
      "{\"name\": \"f\", \"arguments\": {\"a\": 1}}",
      "```json\n{\"type\": \"function\", \"name\": \"f\", \"parameters\": {\"a\": [1.5, "
      "\"é\"]}}\n```",
      "<tools>\n[{\"name\": \"f\", \"arguments\": {}}, {\"name\": \"get\", \"arguments\": "
      "{\"a\": {}}}]\n</tools>\n"};
  return texts;
}

// What all formats are made of.
constexpr std::array<std::string_view, 33> kCallMarks = {"<tool_call>",
                                                         "</tool_call>",
                                                         "\n<tool_call>",
                                                         "<tool_call>\n{\"name\": ",
                                                         "}\n</tool_call>",
                                                         "[TOOL_CALLS]",
                                                         "[TOOL_CALLS] [",
                                                         "[ARGS]",
                                                         "{\"name\": ",
                                                         "{\"name\":",
                                                         ", \"arguments\": ",
                                                         ", \"parameters\": ",
                                                         "\"f\"",
                                                         "\"get\"",
                                                         "get_weather",
                                                         "{}",
                                                         "{\"a\": 1}",
                                                         "{",
                                                         "}",
                                                         "[",
                                                         "]",
                                                         ", ",
                                                         "\"",
                                                         "\\",
                                                         " ",
                                                         "\n",
                                                         "<think>",
                                                         "</think>",
                                                         "```json",
                                                         "```",
                                                         "<tools>",
                                                         "</tools>",
                                                         "<"};

// Puts in, repeats, drops or exchanges marks.
void edit_marks(std::string& text, PhiloxStream& random) {
  const std::string mark(kCallMarks[draw_below(random, kCallMarks.size())]);
  const std::string other(kCallMarks[draw_below(random, kCallMarks.size())]);
  const std::size_t from = draw_below(random, text.size() + 1);
  std::size_t at = text.find(mark, from);
  if (at == std::string::npos) at = text.find(mark);
  const std::size_t kind = draw_below(random, 5);
  if (kind == 0 || at == std::string::npos) {
    text.insert(from, mark);
  } else if (kind == 1) {
    text.insert(from, text.substr(at, draw_below(random, text.size() + 1)));
  } else if (kind == 2) {
    text.erase(at, mark.size());
  } else if (kind == 3) {
    text.replace(at, mark.size(), other);
  } else {
    const std::size_t place = text.find(other, at + mark.size());
    if (place == std::string::npos) return text.resize(at);
    text.replace(place, other.size(), mark);
    text.replace(at, mark.size(), other);
  }
}

void mutate_calls(const CallSeeds& seeds, std::string& text, PhiloxStream& random) {
  const std::vector<std::string>& texts =
      draw_below(random, 4) == 0 ? bare_call_texts() : seeds.texts;
  text = texts[draw_below(random, texts.size())];
  const std::size_t thinks = draw_below(random, 6);
  if (thinks == 0) text = "<think>\nIs it?\n</think>\n\n" + text;
  if (thinks == 1) text = "It is. </think>" + text;
  for (std::size_t n = 1 + draw_below(random, 4); n > 0; --n) edit_marks(text, random);
  if (draw_below(random, 3) == 0) hone::test::mutate_binary(text, random);
}

OutputSyntax mutation_syntax(std::string_view mark, Thought thought) {
  OutputSyntax syntax{.format = &find_tool_format(mark),
                      .tools = {"f", "get", "get_weather", "say \"hi\"", "größe"}};
  if (thought == Thought::None) return syntax;
  syntax.think_begin = kThinkBegin;
  syntax.think_end = kThinkEnd;
  syntax.starts_thinking = thought == Thought::IsOpen;
  return syntax;
}

// The pieces of a text that comes in parts that end at these places, with those of one kind joined.
struct SplitText {
  std::vector<OutputPiece> pieces{};
  bool is_cut = false;

  std::string text_of(OutputPiece::Kind kind) const {
    std::string out;
    for (const OutputPiece& piece : pieces) out += piece.kind == kind ? piece.text : std::string();
    return out;
  }
  // For comparing.
  std::string shown() const {
    std::string out = is_cut ? "cut" : "whole";
    for (const OutputPiece& piece : pieces) {
      out += concat("\n", static_cast<int>(piece.kind), " ", piece.call, " ", piece.text.size(),
                    ": ", piece.text);
    }
    return out;
  }
};

SplitText split_text(const OutputSyntax& syntax, std::string_view text,
                     const std::vector<std::size_t>& cuts) {
  OutputSplitter splitter(syntax);
  SplitText out;
  const auto take = [&](const std::vector<OutputPiece>& pieces) {
    for (const OutputPiece& piece : pieces) {
      EXPECT_FALSE(piece.text.empty());
      const bool joins = !out.pieces.empty() && piece.kind != OutputPiece::Kind::Call &&
                         out.pieces.back().kind == piece.kind &&
                         out.pieces.back().call == piece.call;
      if (joins) {
        out.pieces.back().text += piece.text;
      } else {
        out.pieces.push_back(piece);
      }
    }
  };
  std::size_t begin = 0;
  for (const std::size_t cut : cuts) {
    take(splitter.push(text.substr(begin, cut - begin)));
    begin = cut;
  }
  take(splitter.push(text.substr(begin)));
  take(splitter.finish());
  const auto calls = std::ranges::count(out.pieces, OutputPiece::Kind::Call, &OutputPiece::kind);
  EXPECT_EQ(splitter.calls(), calls);
  out.is_cut = splitter.is_cut();
  return out;
}

std::string_view without_leading_space(std::string_view text) {
  return text.substr(std::min(text.find_first_not_of(kWhiteSpace), text.size()));
}

std::string_view without_outer_space(std::string_view text) {
  text = without_leading_space(text);
  return text.substr(0, text.find_last_not_of(kWhiteSpace) + 1);
}

// The reasoning of a text, and what follows it.
std::pair<std::string_view, std::string_view> part_reasoning(const OutputSyntax& syntax,
                                                             std::string_view text) {
  if (syntax.think_end.empty()) return {"", text};
  std::string_view inner = without_leading_space(text);
  const bool opens = inner.starts_with(kThinkBegin);
  if (!opens && !syntax.starts_thinking) return {"", text};
  if (opens) inner.remove_prefix(kThinkBegin.size());
  const std::size_t end = inner.find(kThinkEnd);
  if (end == inner.npos) return {without_outer_space(inner), ""};
  return {without_outer_space(inner.substr(0, end)),
          without_leading_space(inner.substr(end + kThinkEnd.size()))};
}

// Whether a text is pieces in their order with marks and white space between them, and at the end
// the beginning of a mark or of a call.
class Account {
 public:
  Account(const OutputSyntax& syntax, std::string_view text, const SplitText& split) : text_(text) {
    const ToolFormat& format = *syntax.format;
    for (const OutputPiece& piece : split.pieces) {
      if (piece.kind == OutputPiece::Kind::Reasoning) continue;
      const bool is_call = piece.kind == OutputPiece::Kind::Call;
      pieces_.push_back(is_call ? spelled_name(format, piece.text) : piece.text);
    }
    for (const std::string_view mark : {format.begin, format.open, format.head, format.middle,
                                        format.tail, format.between, format.close}) {
      if (!mark.empty()) marks_.emplace_back(mark);
    }
    ends_ = marks_;
    for (const std::string& tool : syntax.tools) {
      const std::string head = concat(format.head, spelled_name(format, tool), format.middle);
      ends_.push_back(head);
      ends_.push_back(concat(format.open, head));
    }
    seen_.resize((text.size() + 1) * (pieces_.size() + 1));
  }

  bool is_whole() {
    reach(0, 0);
    while (!open_.empty()) {
      const auto [at, piece] = open_.back();
      open_.pop_back();
      const std::string_view rest = text_.substr(at);
      const auto begins = [&](const std::string& end) { return end.starts_with(rest); };
      if (piece == pieces_.size() && std::ranges::any_of(ends_, begins)) return true;
      if (piece < pieces_.size() && rest.starts_with(pieces_[piece])) {
        reach(at + pieces_[piece].size(), piece + 1);
      }
      if (!rest.empty() && kWhiteSpace.find(rest[0]) != kWhiteSpace.npos) reach(at + 1, piece);
      for (const std::string& mark : marks_) {
        if (rest.starts_with(mark)) reach(at + mark.size(), piece);
      }
    }
    return false;
  }

 private:
  void reach(std::size_t at, std::size_t piece) {
    const std::size_t index = at * (pieces_.size() + 1) + piece;
    if (seen_[index]) return;
    seen_[index] = true;
    open_.emplace_back(at, piece);
  }

  const std::string_view text_;
  std::vector<std::string> pieces_, marks_, ends_;
  std::vector<bool> seen_;
  std::vector<std::pair<std::size_t, std::size_t>> open_;
};

// Whether a text after its reasoning can have no calls but those without the marks of the format.
bool lacks_begin(const ToolFormat& format, std::string_view rest) {
  return format.only_at_start ? !without_leading_space(rest).starts_with(format.begin)
                              : rest.find(format.begin) == rest.npos;
}

void expect_bare_calls(const OutputSyntax& syntax, std::string_view rest, const SplitText& split) {
  EXPECT_EQ(split.text_of(OutputPiece::Kind::Content), "");
  for (const OutputPiece& piece : split.pieces) {
    if (piece.kind == OutputPiece::Kind::Call) {
      EXPECT_NE(std::ranges::find(syntax.tools, piece.text), syntax.tools.end()) << piece.text;
    } else if (piece.kind == OutputPiece::Kind::Arguments) {
      EXPECT_TRUE(Json::parse(piece.text, nullptr, false).is_object()) << piece.text;
    }
  }
  // They are written anew, where 1E2 becomes 100.0.
  EXPECT_LE(split.text_of(OutputPiece::Kind::Arguments).size(), 2 * rest.size());
}

void expect_no_loss(const OutputSyntax& syntax, std::string_view text, const SplitText& split) {
  const auto [reasoning, rest] = part_reasoning(syntax, text);
  EXPECT_EQ(split.text_of(OutputPiece::Kind::Reasoning), reasoning);
  const bool has_calls =
      std::ranges::count(split.pieces, OutputPiece::Kind::Call, &OutputPiece::kind) > 0;
  if (!has_calls) {
    EXPECT_EQ(split.text_of(OutputPiece::Kind::Content), rest);
    EXPECT_FALSE(split.is_cut);
    return;
  }
  if (lacks_begin(*syntax.format, rest)) return expect_bare_calls(syntax, rest, split);
  EXPECT_TRUE(Account(syntax, rest, split).is_whole()) << split.shown();
  EXPECT_LE(split.text_of(OutputPiece::Kind::Arguments).size(), rest.size());
}

void expect_one_split(const OutputSyntax& syntax, const std::string& text, PhiloxStream& random) {
  const SplitText whole = split_text(syntax, text, {});
  expect_no_loss(syntax, text, whole);
  std::vector<std::size_t> cuts(text.size());
  for (std::size_t i = 0; i < cuts.size(); ++i) cuts[i] = i + 1;
  EXPECT_EQ(split_text(syntax, text, cuts).shown(), whole.shown()) << "byte by byte";
  for (int i = 0; i < 2; ++i) {
    cuts.resize(1 + draw_below(random, 6));
    for (std::size_t& cut : cuts) cut = draw_below(random, text.size() + 1);
    std::ranges::sort(cuts);
    EXPECT_EQ(split_text(syntax, text, cuts).shown(), whole.shown())
        << testing::PrintToString(cuts);
  }
}

class ToolsMutation : public testing::TestWithParam<std::size_t> {};

TEST_P(ToolsMutation, pieces_are_the_same_for_all_cuts_and_lose_nothing) {
  const CallSeeds& seeds = call_seeds()[GetParam()];
  PhiloxStream random(8);
  hone::test::run_mutations(
      seeds.texts[0],
      [&](std::string& text, PhiloxStream& stream) { mutate_calls(seeds, text, stream); },
      [&](const std::string& text) {
        for (const Thought thought : {Thought::None, Thought::MayCome, Thought::IsOpen}) {
          SCOPED_TRACE(concat("thought ", static_cast<int>(thought), ": ", text));
          expect_one_split(mutation_syntax(seeds.mark, thought), text, random);
        }
      },
      {.are_refused = false, .is_text = true, .processor_s = 0.2 * hone::test::kSlowdown});
}

INSTANTIATE_TEST_SUITE_P(, ToolsMutation, testing::Range<std::size_t>(0, 5), [](const auto& seeds) {
  return std::string(call_seeds()[seeds.param].name);
});

TEST(ToollessMutation, all_but_the_reasoning_is_content) {
  PhiloxStream random(9);
  const CallSeeds& seeds = call_seeds()[0];
  hone::test::run_mutations(
      seeds.texts[0],
      [&](std::string& text, PhiloxStream& stream) { mutate_calls(seeds, text, stream); },
      [&](const std::string& text) {
        for (const Thought thought : {Thought::None, Thought::MayCome, Thought::IsOpen}) {
          OutputSyntax syntax = mutation_syntax(seeds.mark, thought);
          syntax.tools.clear();
          expect_one_split(syntax, text, random);
          syntax.format = nullptr;
          EXPECT_EQ(split_text(syntax, text, {}).text_of(OutputPiece::Kind::Content),
                    part_reasoning(syntax, text).second);
        }
      },
      {.are_refused = false, .is_text = true});
}

class StyleMutation : public testing::TestWithParam<const char*> {};

TEST_P(StyleMutation, every_template_has_a_format) {
  const auto folder = hone::test::source_file("tests/text/chat_templates");
  const std::string seed = read_text_file(folder / (std::string(GetParam()) + ".jinja"));
  const auto mutate = [](std::string& text, PhiloxStream& random) {
    for (std::size_t n = draw_below(random, 3); n > 0; --n) edit_marks(text, random);
    hone::test::mutate_binary(text, random);
  };
  hone::test::run_mutations(seed, mutate,
                            [](const std::string& text) {
                              const ToolFormat& format = find_tool_format(text);
                              const ChatStyle style = find_chat_style(text);
                              EXPECT_FALSE(format.begin.empty());
                              EXPECT_EQ(style.format, &format);
                              EXPECT_EQ(style.shows_tools, shows_tools(text));
                              const bool thinks = text.find(kThinkEnd) != std::string::npos;
                              EXPECT_EQ(style.think_begin, thinks ? kThinkBegin : "");
                              EXPECT_EQ(style.think_end, thinks ? kThinkEnd : "");
                            },
                            {.runs = 2'000, .are_refused = false, .is_text = true});
}

INSTANTIATE_TEST_SUITE_P(, StyleMutation,
                         testing::Values("chatml", "deepseek", "gemma", "llama3", "mistral", "phi"),
                         [](const auto& name) { return std::string(name.param); });

}  // namespace
}  // namespace hone::server
