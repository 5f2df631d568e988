// SPDX-License-Identifier: Apache-2.0
// Formats of calls: which template has which, and that what a grammar lets a model write is read
// back as the same calls.
#include "hone/server/tools/tool_format.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <memory>
#include <optional>
#include <ostream>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "hone/core/check.h"
#include "hone/core/philox.h"
#include "hone/server/tools/chat_style.h"
#include "hone/server/tools/described_tools.h"
#include "hone/server/tools/format_cache.h"
#include "hone/server/tools/output_splitter.h"
#include "tests/infer/grammar/grammar_support.h"
#include "tests/support/error_of.h"
#include "tests/text/toy_vocabulary.h"

namespace hone::server {
namespace {

using infer::OutputFormat;
using infer::OutputPart;
using infer::grammar::Matcher;
using testing::ElementsAre;
using testing::HasSubstr;

// What marks each format in a template.
constexpr std::array<std::string_view, 5> kFormatMarks = {"<tool_call>", "[ARGS]", "[TOOL_CALLS]",
                                                          "<|start_header_id|>", "<start_of_turn>"};

struct WrittenCall {
  std::string name, arguments;
  friend bool operator==(const WrittenCall&, const WrittenCall&) = default;
  friend void PrintTo(const WrittenCall& call, std::ostream* out) {
    *out << call.name << "(" << call.arguments << ")";
  }
};

const std::vector<Tool>& known_tools() {
  static const std::vector<Tool> tools = {
      {.name = "f",
       .parameters = R"({"type":"object","properties":{"city":{"type":"string","maxLength":9}},
                         "required":["city"]})",
       .label = "f"},
      {.name = "get_weather",
       .parameters = R"({"type":"object","properties":{"days":{"type":"integer","minimum":-9,
                         "maximum":99},"tags":{"type":"array","maxItems":2,
                         "items":{"enum":["a","]}\"",null]}}},"additionalProperties":false})",
       .label = "get_weather"},
      {.name = "say \"hi\"",
       .parameters = R"({"type":"object","properties":{"on":{"type":"boolean"},"at":
                         {"type":"object","properties":{"x":{"type":"number","minimum":0,
                         "maximum":1}},"required":["x"]}},"required":["on"]})",
       .label = "say"}};
  return tools;
}

// Calls that satisfy their schemas.
const std::vector<WrittenCall>& valid_calls() {
  static const std::vector<WrittenCall> calls = {
      {"f", R"({"city": "Bath"})"},
      {"f", R"({"city":"\"}]{\\"})"},
      {"get_weather", "{}"},
      {"get_weather", R"({"days": -3, "tags": ["a", "]}\""]})"},
      {"get_weather", R"({"tags":["]}\"", null]})"},
      {"say \"hi\"", R"({"on": true, "at": {"x": 0.5}})"},
      {"say \"hi\"", R"({"on":false})"},
  };
  return calls;
}

// A tokenizer of single bytes with these control tokens.
std::shared_ptr<const text::Tokenizer> tokenizer_with(const std::vector<std::string>& control) {
  text::Vocabulary vocabulary = test::toy_byte_level({});
  for (const std::string& piece : control) {
    test::add_piece(vocabulary, piece, text::TokenType::Control);
  }
  return text::make_tokenizer(std::move(vocabulary));
}

const std::vector<std::string>& control_pieces() {
  static const std::vector<std::string> pieces = {"[TOOL_CALLS]", "[ARGS]", "<tool_call>",
                                                  "</tool_call>"};
  return pieces;
}

// begin [white space] open {head NAME middle ARGUMENTS tail} joined by `between`, then close
std::string written(const ToolFormat& format, const std::vector<WrittenCall>& calls,
                    std::string_view space = "") {
  std::string out = concat(format.begin, space, format.open);
  for (const WrittenCall& call : calls) {
    if (&call != &calls.front()) out += format.between;
    out += concat(format.head, spelled_name(format, call.name), format.middle, call.arguments,
                  format.tail);
  }
  return out + std::string(format.close);
}

// What a model that must call tools may write.
std::shared_ptr<const infer::grammar::JsonSchema> calls_only(const ToolFormat& format,
                                                             const std::vector<Tool>& tools,
                                                             bool repeats,
                                                             const text::Tokenizer& tokenizer) {
  OutputFormat out = call_format(format, tools, repeats, tokenizer);
  const std::vector<OutputPart> begin = text_parts(format.begin, tokenizer);
  out.before.insert(out.before.begin(), begin.begin(), begin.end());
  return infer::compile_output(out);
}

// Reads a text as its tokens: control tokens where it spells them, otherwise bytes.
Matcher::State read_tokens(Matcher& matcher, std::string_view text,
                           const text::Tokenizer& tokenizer) {
  Matcher::State state = matcher.start();
  while (!text.empty() && !state.is_dead()) {
    std::size_t taken = 1;
    std::optional<text::TokenId> control;
    for (text::TokenId id = 256; id < tokenizer.vocab_size(); ++id) {
      const std::string piece = tokenizer.piece(id);
      if (!tokenizer.is_control(id) || !text.starts_with(piece)) continue;
      control = id;
      taken = piece.size();
    }
    state = control ? matcher.advance_token(state, *control, false)
                    : matcher.advance(state, text.substr(0, 1));
    text.remove_prefix(taken);
  }
  return state;
}

// The calls that a splitter finds, and the content beside them.
std::pair<std::vector<WrittenCall>, std::string> read_back(const ToolFormat& format,
                                                           const std::vector<Tool>& tools,
                                                           std::string_view text) {
  OutputSyntax syntax{.format = &format};
  for (const Tool& tool : tools) syntax.tools.push_back(tool.name);
  OutputSplitter splitter(syntax);
  std::vector<OutputPiece> pieces = splitter.push(text);
  for (OutputPiece& piece : splitter.finish()) pieces.push_back(std::move(piece));
  std::vector<WrittenCall> calls;
  std::string content;
  for (const OutputPiece& piece : pieces) {
    if (piece.kind == OutputPiece::Kind::Call) {
      calls.push_back({piece.text, ""});
    } else if (piece.kind == OutputPiece::Kind::Arguments) {
      calls.at(static_cast<std::size_t>(piece.call)).arguments += piece.text;
    } else {
      content += piece.text;
    }
  }
  return {calls, content};
}

struct FamilyTemplate {
  std::string_view family, fragment, format;
  bool shows_tools = false, thinks = false;
};

TEST(ToolFormat, follows_from_the_template_of_a_family) {
  const FamilyTemplate families[] = {
      {"ChatML", "{{'<|im_start|>' + message['role'] + '\n' + message['content']}}", "hermes"},
      {"Zephyr", "{{ '<|assistant|>\n' + message['content'] + eos_token }}", "hermes"},
      {"Hermes 2 Pro",
       "{%- if tools %}For each function call return a json object with function name and "
       "arguments "
       "within <tool_call></tool_call> XML tags",
       "hermes", true},
      {"Qwen 2.5",
       "{%- if tools %}<tools>{{ tool | tojson }}</tools>\n\n<tool_call>\n{\"name\": "
       "<function-name>, \"arguments\": <args-json-object>}\n</tool_call>",
       "hermes", true},
      {"Qwen 3",
       "{%- if tools %}<tool_call>\n</tool_call>{% endif %}{%- if '</think>' in content %}<think>",
       "hermes", true, true},
      {"DeepSeek R1 distilled",
       "{% set content = content.split('</think>')[-1] %}<｜Assistant｜><think>\n", "hermes", false,
       true},
      {"Mistral 7B v0.3",
       "{{- '[AVAILABLE_TOOLS] [' }}{% if tools %}{% endif %}{{- '[TOOL_CALLS] [' }}"
       "{{- ', \"id\": \"' + tool_call.id + '\"}' }}",
       "mistral", true},
      {"Mistral Nemo", "[AVAILABLE_TOOLS][{%- for tool in tools %}[TOOL_CALLS][", "mistral", true},
      {"Mistral Small 3.2",
       "[AVAILABLE_TOOLS]{{ tools }}[/AVAILABLE_TOOLS]{{- '[TOOL_CALLS]' + name + '[ARGS]' }}",
       "mistral, tokens", true},
      {"Llama 3", "{{ '<|start_header_id|>' + message['role'] + '<|end_header_id|>\n\n' }}",
       "llama 3"},
      {"Llama 3.1",
       "<|start_header_id|>user<|end_header_id|>{% if tools %}Respond in the format {\"name\": "
       "function name, \"parameters\": dictionary of argument name and its value}.",
       "llama 3", true},
      {"Gemma 2", "{{ '<start_of_turn>' + role + '\n' + message['content'] + '<end_of_turn>\n' }}",
       "gemma"},
  };
  for (const FamilyTemplate& one : families) {
    const ChatStyle style = find_chat_style(one.fragment);
    EXPECT_EQ(style.format->name, one.format) << one.family;
    EXPECT_EQ(style.shows_tools, one.shows_tools) << one.family;
    EXPECT_EQ(style.think_begin, one.thinks ? "<think>" : "") << one.family;
    EXPECT_EQ(style.think_end, one.thinks ? "</think>" : "") << one.family;
  }
  EXPECT_EQ(find_tool_format("").name, "hermes");
}

TEST(ToolFormat, spells_names_as_json_or_as_they_are) {
  EXPECT_EQ(spelled_name(find_tool_format("<tool_call>"), "say \"hi\""), R"("say \"hi\"")");
  EXPECT_EQ(spelled_name(find_tool_format("[TOOL_CALLS]"), "f"), "\"f\"");
  EXPECT_EQ(spelled_name(find_tool_format("<start_of_turn>"), "f"), "\"f\"");
  EXPECT_EQ(spelled_name(find_tool_format("[ARGS]"), "say \"hi\""), "say \"hi\"");
}

std::vector<std::string> shown_parts(const std::vector<OutputPart>& parts) {
  std::vector<std::string> out;
  for (const OutputPart& part : parts) {
    EXPECT_EQ(part.kind == OutputPart::Kind::Token, part.token >= 0);
    out.push_back(concat(part.kind == OutputPart::Kind::Token ? "token " : "text ", part.text));
  }
  return out;
}

TEST(ToolFormat, text_parts_are_control_tokens_and_what_is_between_them) {
  const auto tokenizer = tokenizer_with({"[TOOL_CALLS]", "<tool_call>"});
  EXPECT_THAT(shown_parts(text_parts("[TOOL_CALLS]", *tokenizer)),
              ElementsAre("token [TOOL_CALLS]"));
  EXPECT_THAT(shown_parts(text_parts("a[TOOL_CALLS] [1]</tool_call>", *tokenizer)),
              ElementsAre("text a", "token [TOOL_CALLS]", "text  [1]</tool_call>"));
  EXPECT_THAT(shown_parts(text_parts("\n<tool_call>[TOOL_CALLS]<|end|>", *tokenizer)),
              ElementsAre("text \n", "token <tool_call>", "token [TOOL_CALLS]", "token <|end|>"));
  EXPECT_THAT(shown_parts(text_parts("}\n<", *tokenizer)), ElementsAre("text }\n<"));
  EXPECT_TRUE(text_parts("", *tokenizer).empty());
  const std::vector<OutputPart> parts = text_parts("[TOOL_CALLS]", *tokenizer);
  EXPECT_EQ(tokenizer->piece(parts.at(0).token), "[TOOL_CALLS]");
}

// Qwen's <tool_call> is such a token.
TEST(ToolFormat, added_tokens_that_are_no_control_tokens_stay_text) {
  text::Vocabulary vocabulary = test::toy_byte_level({});
  test::add_piece(vocabulary, "<tool_call>", text::TokenType::UserDefined);
  const auto tokenizer = text::make_tokenizer(std::move(vocabulary));
  EXPECT_THAT(shown_parts(text_parts("<tool_call>\n", *tokenizer)),
              ElementsAre("text <tool_call>\n"));
}

TEST(ToolFormat, text_parts_finds_control_tokens_of_sentencepiece) {
  text::Vocabulary vocabulary = test::toy_sentencepiece({{"\xe2\x96\x81", -1.0F}, {"[", -2.0F}});
  test::add_piece(vocabulary, "[TOOL_CALLS]", text::TokenType::Control);
  const auto tokenizer = text::make_tokenizer(std::move(vocabulary));
  EXPECT_THAT(shown_parts(text_parts("[TOOL_CALLS]", *tokenizer)),
              ElementsAre("token [TOOL_CALLS]"));
  EXPECT_THAT(shown_parts(text_parts("[ARGS]", *tokenizer)), ElementsAre("text [ARGS]"));
}

TEST(ToolFormat, calls_make_the_round_trip) {
  const std::vector<WrittenCall>& valid = valid_calls();
  PhiloxStream random(21);
  for (const auto& tokenizer : {tokenizer_with({}), tokenizer_with(control_pieces())}) {
    for (const std::string_view mark : kFormatMarks) {
      const ToolFormat& format = find_tool_format(mark);
      const auto grammar = calls_only(format, known_tools(), true, *tokenizer);
      for (int run = 0; run < 60; ++run) {
        std::vector<WrittenCall> calls;
        const std::uint32_t count = format.repeats ? 1 + random.below(3) : 1;
        for (std::uint32_t i = 0; i < count; ++i) {
          calls.push_back(valid[random.below(static_cast<std::uint32_t>(valid.size()))]);
        }
        const std::string text =
            written(format, calls, format.has_space && random.below(2) == 0 ? " " : "");
        Matcher matcher(grammar);
        EXPECT_TRUE(matcher.is_accepting(read_tokens(matcher, text, *tokenizer)))
            << format.name << ": " << text;
        const auto [found, content] = read_back(format, known_tools(), text);
        EXPECT_EQ(found, calls) << format.name << ": " << text;
        EXPECT_EQ(content, "") << format.name << ": " << text;
      }
    }
  }
}

TEST(ToolFormat, a_grammar_takes_no_other_calls) {
  const auto tokenizer = tokenizer_with({});
  for (const std::string_view mark : kFormatMarks) {
    const ToolFormat& format = find_tool_format(mark);
    SCOPED_TRACE(format.name);
    const auto grammar = calls_only(format, known_tools(), true, *tokenizer);
    const auto is_accepted = [&](std::string_view text) {
      return infer::grammar::test::accepts(grammar, text);
    };
    const std::string text = written(format, {{"f", R"({"city": "Bath"})"}});
    ASSERT_TRUE(is_accepted(text));
    for (std::size_t size = 0; size < text.size(); ++size) {
      EXPECT_FALSE(is_accepted(std::string_view(text).substr(0, size))) << size;
    }
    EXPECT_FALSE(is_accepted(text + " "));
    EXPECT_FALSE(is_accepted("A text."));
    EXPECT_FALSE(is_accepted(written(format, {{"unknown", R"({"city": "Bath"})"}})));
    EXPECT_FALSE(is_accepted(written(format, {{"f", "{}"}})));
    EXPECT_FALSE(is_accepted(written(format, {{"f", R"({"city": 5})"}})));
    EXPECT_FALSE(is_accepted(written(format, {{"f", R"({"days": 3})"}})));
    // An object has what its schema lists, unless that says that there may be more.
    EXPECT_FALSE(is_accepted(written(format, {{"f", R"({"city": "Bath", "more": 1})"}})));
  }
}

TEST(ToolFormat, several_calls_need_a_format_and_a_request_that_allow_them) {
  const auto tokenizer = tokenizer_with({});
  const std::vector<WrittenCall> one = {valid_calls()[0]},
                                 two = {valid_calls()[0], valid_calls()[2]};
  for (const std::string_view mark : kFormatMarks) {
    const ToolFormat& format = find_tool_format(mark);
    SCOPED_TRACE(format.name);
    for (const bool repeats : {false, true}) {
      const auto grammar = calls_only(format, known_tools(), repeats, *tokenizer);
      EXPECT_TRUE(infer::grammar::test::accepts(grammar, written(format, one)));
      EXPECT_EQ(infer::grammar::test::accepts(grammar, written(format, two)),
                repeats && format.repeats);
    }
  }
  EXPECT_FALSE(find_tool_format("<|start_header_id|>").repeats);
  EXPECT_TRUE(find_tool_format("<tool_call>").repeats);
}

TEST(ToolFormat, control_tokens_of_a_format_are_not_written_as_text) {
  const auto tokenizer = tokenizer_with(control_pieces());
  for (const std::string_view mark : {"<tool_call>", "[ARGS]", "[TOOL_CALLS]"}) {
    const ToolFormat& format = find_tool_format(mark);
    Matcher matcher(calls_only(format, known_tools(), true, *tokenizer));
    EXPECT_TRUE(matcher.advance(matcher.start(), format.begin).is_dead()) << format.name;
    EXPECT_EQ(matcher.next_tokens(matcher.start()).size(), 1U) << format.name;
  }
}

// Texts that are drawn token by token from what the grammar allows.
TEST(ToolFormat, every_text_of_a_grammar_is_read_as_calls) {
  const auto tokenizer = tokenizer_with({});
  const auto vocabulary = infer::grammar::test::make_small_vocabulary();
  PhiloxStream random(22);
  for (const std::string_view mark : kFormatMarks) {
    const ToolFormat& format = find_tool_format(mark);
    const auto grammar = calls_only(format, known_tools(), true, *tokenizer);
    int ended = 0, several = 0;
    for (int run = 0; run < 80; ++run) {
      const std::string text = infer::grammar::test::random_text(grammar, vocabulary, random, 600);
      if (text.empty()) continue;
      ++ended;
      const auto [calls, content] = read_back(format, known_tools(), text);
      ASSERT_FALSE(calls.empty()) << format.name << ": " << text;
      ASSERT_EQ(content, "") << format.name << ": " << text;
      several += calls.size() > 1;
      std::string again = written(format, calls);
      if (format.has_space) {  // the white space after the beginning is not part of a call
        const std::size_t open = text.find(format.open, format.begin.size());
        again =
            written(format, calls, text.substr(format.begin.size(), open - format.begin.size()));
      }
      ASSERT_EQ(again, text) << format.name;
      for (const WrittenCall& call : calls) {
        EXPECT_NO_THROW(parse_json(call.arguments, "the test")) << text;
      }
    }
    EXPECT_GT(ended, 40) << format.name;
    EXPECT_EQ(several > 0, format.repeats) << format.name;
  }
}

TEST(ToolFormat, arguments_that_are_no_objects_make_the_round_trip) {
  const auto tokenizer = tokenizer_with({});
  const std::vector<Tool> tools = {
      {.name = "n",
       .parameters = R"({"type":["integer","boolean","null","string"]})",
       .label = "n"}};
  for (const std::string_view mark : kFormatMarks) {
    const ToolFormat& format = find_tool_format(mark);
    const auto grammar = calls_only(format, tools, true, *tokenizer);
    for (const char* value : {"12", "-7", "true", "null", R"("[}\"")"}) {
      std::vector<WrittenCall> calls = {{"n", value}};
      if (format.repeats) calls.push_back(calls[0]);
      const std::string text = written(format, calls);
      EXPECT_TRUE(infer::grammar::test::accepts(grammar, text)) << text;
      EXPECT_EQ(read_back(format, tools, text).first, calls) << text;
    }
  }
}

// A model that need not call tools writes anything until a call begins, and then that call.
TEST(ToolFormat, a_call_that_has_begun_in_a_text_goes_on_as_its_grammar_says) {
  const auto tokenizer = tokenizer_with({});
  for (const std::string_view mark : kFormatMarks) {
    const ToolFormat& format = find_tool_format(mark);
    SCOPED_TRACE(format.name);
    OutputFormat free = call_format(format, known_tools(), true, *tokenizer);
    const OutputPart until{.kind = OutputPart::Kind::Free,
                           .text = std::string(format.begin),
                           .may_end = true,
                           .only_at_start = format.only_at_start};
    free.before.insert(free.before.begin(), until);
    const auto grammar = infer::compile_output(free);
    const auto is_accepted = [&](std::string_view text) {
      return infer::grammar::test::accepts(grammar, text);
    };
    const std::string call = written(format, {valid_calls()[0]});
    const std::string begin(format.begin);
    EXPECT_TRUE(is_accepted(""));
    EXPECT_TRUE(is_accepted("A text."));
    EXPECT_TRUE(is_accepted(call));
    EXPECT_TRUE(is_accepted("\n " + call));
    EXPECT_TRUE(is_accepted(begin.substr(0, begin.size() - 1)));
    EXPECT_FALSE(is_accepted(begin));
    EXPECT_FALSE(is_accepted(begin + "\n{\"unknown"));
    // Where calls are the whole answer, one that comes later is text.
    EXPECT_TRUE(is_accepted("A text. " + call));
    EXPECT_EQ(is_accepted("A text. " + begin), format.only_at_start);
    EXPECT_EQ(read_back(format, known_tools(), "A text. " + call).first.empty(),
              format.only_at_start);
  }
}

OutputFormat format_of_constant(int value) {
  OutputFormat format;
  format.choices = {{{.kind = OutputPart::Kind::Value,
                      .text = concat("{\"const\":", value, "}"),
                      .label = "here"}}};
  return format;
}

TEST(FormatCache, compiles_a_format_once_and_forgets_what_was_not_used_for_longest) {
  FormatCache large(std::size_t{1} << 24);
  const FormatCache::Entry first = large.compile(format_of_constant(1));
  EXPECT_EQ(large.compile(format_of_constant(1)).grammar, first.grammar);
  EXPECT_NE(large.compile(format_of_constant(2)).grammar, first.grammar);
  OutputFormat other = format_of_constant(1);
  other.choices[0][0].label = "there";
  EXPECT_NE(large.compile(other).grammar, first.grammar) << "messages name the label";
  other = format_of_constant(1);
  other.choices[0][0].is_strict = false;
  EXPECT_NE(large.compile(other).grammar, first.grammar);

  FormatCache two(2 * first.bytes + first.bytes / 2);
  const auto one = two.compile(format_of_constant(1)).grammar;
  const auto dropped = two.compile(format_of_constant(2)).grammar;
  EXPECT_EQ(two.compile(format_of_constant(1)).grammar, one);
  two.compile(format_of_constant(3));
  EXPECT_EQ(two.compile(format_of_constant(1)).grammar, one);
  EXPECT_NE(two.compile(format_of_constant(2)).grammar, dropped);

  FormatCache none(1);
  EXPECT_NE(none.compile(format_of_constant(1)).grammar,
            none.compile(format_of_constant(1)).grammar);
}

TEST(FormatCache, tells_what_is_left_out_each_time) {
  OutputFormat format;
  format.choices = {{{.kind = OutputPart::Kind::Value,
                      .text = R"({"type":"integer","not":{"const":3}})",
                      .is_strict = false,
                      .label = "tools[0]"}}};
  FormatCache cache(std::size_t{1} << 24);
  for (int run = 0; run < 2; ++run) {
    EXPECT_THAT(cache.compile(format).ignored, ElementsAre("tools[0]/not"));
  }
  format.choices[0][0].is_strict = true;
  EXPECT_THAT(hone::test::error_of([&] { cache.compile(format); }),
              AllOf(HasSubstr("tools[0]"), HasSubstr("\"not\"")));
}

text::Conversation tool_conversation() {
  text::Conversation out;
  const auto call = [](const char* name, const Json& arguments) {
    return Json{{"id", "1"},
                {"type", "function"},
                {"function", {{"name", name}, {"arguments", arguments}}}};
  };
  out.messages = Json::array();
  out.messages.push_back({{"role", "system"}, {"content", "Be brief."}});
  out.messages.push_back({{"role", "user"}, {"content", "How is it in Bath and York?"}});
  out.messages.push_back({{"role", "assistant"},
                          {"content", "I look."},
                          {"tool_calls", Json::array({call("f", {{"city", "Bath"}}),
                                                      call("f", "{\"city\": \"York")})}});
  out.messages.push_back({{"role", "tool"}, {"tool_call_id", "1"}, {"content", "sunny"}});
  out.messages.push_back({{"role", "tool"}, {"tool_call_id", "2"}, {"content", "windy"}});
  out.messages.push_back({{"role", "user"}, {"content", "Thanks."}});
  out.tools = Json::array();
  out.tools.push_back(
      {{"type", "function"}, {"function", {{"name", "f"}, {"description", "The weather."}}}});
  return out;
}

TEST(DescribedTools, are_messages_that_any_template_takes) {
  for (const std::string_view mark : kFormatMarks) {
    const ToolFormat& format = find_tool_format(mark);
    SCOPED_TRACE(format.name);
    text::Conversation conversation = tool_conversation();
    describe_tools(conversation, format);
    EXPECT_TRUE(conversation.tools.is_null());
    const Json& messages = conversation.messages;
    std::vector<std::string> roles;
    for (const Json& message : messages) {
      roles.push_back(message["role"].get<std::string>());
      EXPECT_FALSE(message.contains("tool_calls"));
    }
    ASSERT_THAT(roles, ElementsAre("system", "user", "assistant", "user", "user"));
    EXPECT_THAT(messages[0]["content"].get<std::string>(),
                AllOf(testing::StartsWith("Be brief."), HasSubstr("The weather."),
                      HasSubstr(std::string(format.begin))));
    EXPECT_EQ(messages[3]["content"],
              "<tool_response>\nsunny\n</tool_response>\n<tool_response>\nwindy\n</tool_response>");
    // The answer reads as what it was; arguments that are no JSON stay as the model wrote them.
    const std::string answer = messages[2]["content"].get<std::string>();
    EXPECT_THAT(answer, testing::StartsWith("I look."));
    EXPECT_THAT(answer, HasSubstr("{\"city\": \"York"));
    if (format.only_at_start) continue;
    const auto [calls, content] = read_back(format, known_tools(), answer);
    ASSERT_FALSE(calls.empty());
    EXPECT_EQ(calls[0].name, "f");
    EXPECT_EQ(Json::parse(calls[0].arguments), Json::parse(R"({"city": "Bath"})"));
    EXPECT_THAT(content, testing::StartsWith("I look."));
  }
}

TEST(DescribedTools, leave_a_conversation_without_tools_alone) {
  text::Conversation conversation;
  conversation.messages = Json::array({Json{{"role", "user"}, {"content", "Hello"}}});
  const Json before = conversation.messages;
  describe_tools(conversation, find_tool_format(""));
  EXPECT_EQ(conversation.messages, before);
}

}  // namespace
}  // namespace hone::server
