// SPDX-License-Identifier: Apache-2.0
// Tools and schemas in all three APIs. The model of stories would never call a tool by itself, so
// that whatever it writes is due to the grammar.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cctype>
#include <functional>
#include <map>
#include <regex>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "hone/core/check.h"
#include "hone/core/file/json_io.h"
#include "hone/server/server.h"
#include "tests/server/http_client.h"
#include "tests/server/stories_server.h"
#include "tests/server/tool_requests.h"

namespace hone::server {
namespace {

using test::Answered;
using test::Api;
using test::choice_of;
using test::events_of;
using test::HttpAnswer;
using test::kApis;
using test::pieces_of;
using test::RawClient;
using test::request_for;
using test::route_of;
using test::schema_path;
using test::stream_answer;
using test::tool_of;
using test::ToolCall;
using test::whole_answer;
using testing::HasSubstr;

const std::map<std::string, Json>& tool_schemas() {
  static const std::map<std::string, Json> schemas = {
      {"pick", Json::parse(R"({"type":"object","properties":{"color":{"enum":["red","blue"]},
          "count":{"type":"integer","minimum":0,"maximum":9}},"required":["color","count"]})")},
      {"code", Json::parse(R"({"type":"object","properties":{"code":{"type":"string",
          "pattern":"^[a-c]{2}-[0-9]$"}},"required":["code"]})")},
      {"plan", Json::parse(R"({"type":"object","properties":{"flags":{"type":"array",
          "items":{"type":"boolean"},"maxItems":3},"day":{"type":"string","format":"date"}},
          "required":["flags","day"],"additionalProperties":false})")}};
  return schemas;
}

bool is_text_like(const Json& value, const char* pattern) {
  return value.is_string() && std::regex_match(value.get<std::string>(), std::regex(pattern));
}

bool is_in(const Json& value, int low, int high) {
  return value.is_number_integer() && value.get<Index>() >= low && value.get<Index>() <= high;
}

// Whether the arguments of a call satisfy the schema of its tool.
bool satisfies(const ToolCall& call) {
  Json value = Json::parse(call.arguments, nullptr, false);
  if (!value.is_object()) return false;
  if (call.name == "pick") {
    return value.size() == 2 && (value["color"] == "red" || value["color"] == "blue") &&
           is_in(value["count"], 0, 9);
  }
  if (call.name == "code") {
    return value.size() == 1 && is_text_like(value["code"], "[a-c]{2}-[0-9]");
  }
  if (call.name != "plan" || value.size() != 2 || !value["flags"].is_array()) return false;
  return value["flags"].size() <= 3 &&
         std::ranges::all_of(value["flags"], [](const Json& one) { return one.is_boolean(); }) &&
         is_text_like(value["day"], "[12]\\d{3}-(0[1-9]|1[0-2])-(0[1-9]|[12]\\d|3[01])");
}

Json all_tools(Api api) {
  Json tools = Json::array();
  for (const auto& [name, schema] : tool_schemas()) tools.push_back(tool_of(api, name, schema));
  return tools;
}

// A template that says nothing of tools to the model, in the format of a family.
std::string template_with(std::string_view mark) {
  return concat("{# tools ", mark, " #}", test::kStoriesTemplate);
}

constexpr Index kEnough = 200;  // tokens for any call of these tools

class ToolsTest : public test::StoriesServer {
 protected:
  void open_with(std::string_view mark) { open({}, {}, template_with(mark)); }
  // The answer at once and as a stream, which must say the same.
  Answered both(Api api, Json body) {
    RawClient client(port());
    const HttpAnswer answer = client.post_json(route_of(api), body);
    EXPECT_EQ(answer.status, 200) << answer.body;
    if (answer.status != 200) return {};
    const Answered whole = whole_answer(api, answer.json());
    body["stream"] = true;
    const HttpAnswer stream = client.post_json(route_of(api), body);
    EXPECT_EQ(stream.status, 200) << stream.body;
    EXPECT_EQ(stream_answer(api, stream.body).shown(), whole.shown());
    return whole;
  }
  // The error of a request, and its status.
  std::pair<int, Json> refusal(Api api, const Json& body) {
    RawClient client(port());
    const HttpAnswer answer = client.post_json(route_of(api), body);
    return {answer.status, answer.status == 200 ? Json() : answer.json()["error"]};
  }
  // A bias for all tokens whose text begins with a character.
  Json bias_for(char first, int bias) const {
    Json out = Json::object();
    const text::Tokenizer& tokenizer = engine_->tokenizer();
    for (text::TokenId id = 0; id < tokenizer.vocab_size(); ++id) {
      if (tokenizer.piece_bytes(id).starts_with(first)) out[concat(id)] = bias;
    }
    return out;
  }
};

class ToolsOfFamily : public ToolsTest, public testing::WithParamInterface<const char*> {};

INSTANTIATE_TEST_SUITE_P(Marks, ToolsOfFamily,
                         testing::Values("<tool_call>", "[TOOL_CALLS]", "[TOOL_CALLS] [ARGS]",
                                         "<|start_header_id|>", "<start_of_turn>"));

TEST_P(ToolsOfFamily, calls_that_are_required_satisfy_their_schemas) {
  open_with(GetParam());
  if (!server_) return;
  for (const Api api : kApis) {
    for (const std::string choice : {"any", "pick", "code", "plan"}) {
      const Answered answer = both(api, request_for(api, all_tools(api), choice, kEnough));
      SCOPED_TRACE(concat(route_of(api), " ", choice, ": ", answer.shown()));
      EXPECT_EQ(answer.finish, "calls");
      EXPECT_EQ(answer.text, "");
      ASSERT_EQ(answer.calls.size(), 1U);
      if (choice != "any") {
        EXPECT_EQ(answer.calls[0].name, choice);
      }
      EXPECT_TRUE(satisfies(answer.calls[0]));
    }
  }
}

TEST_P(ToolsOfFamily, a_call_that_is_cut_ends_by_length_and_begins_as_the_whole_one) {
  open_with(GetParam());
  if (!server_) return;
  for (const Api api : kApis) {
    const Answered whole = both(api, request_for(api, all_tools(api), "plan", kEnough));
    ASSERT_EQ(whole.calls.size(), 1U);
    ASSERT_GT(whole.tokens, 8);
    for (const Index tokens : {Index{1}, whole.tokens / 4, whole.tokens / 2, whole.tokens - 3,
                               whole.tokens - 2, whole.tokens - 1}) {
      const Answered cut = both(api, request_for(api, all_tools(api), "plan", tokens));
      SCOPED_TRACE(concat(route_of(api), " ", tokens, ": ", cut.shown()));
      EXPECT_EQ(cut.finish, "length");
      EXPECT_EQ(cut.tokens, tokens);
      ASSERT_LE(cut.calls.size(), 1U);
      if (cut.calls.empty()) continue;
      EXPECT_EQ(cut.text, "");
      EXPECT_EQ(cut.calls[0].name, "plan");
      const bool begins = whole.calls[0].arguments.starts_with(cut.calls[0].arguments);
      EXPECT_TRUE(begins || (api == Api::Messages && cut.calls[0].arguments == "{}"));
    }
  }
}

TEST_P(ToolsOfFamily, an_answer_of_a_schema_or_a_call_is_one_of_both) {
  open_with(GetParam());
  if (!server_) return;
  Json body = request_for(Api::Chat, all_tools(Api::Chat), "auto", kEnough);
  body["response_format"] = Json::parse(R"({"type":"json_schema","json_schema":{"name":"age",
      "schema":{"type":"array","items":{"type":"integer","minimum":0,"maximum":9},"minItems":2,
      "maxItems":2}}})");
  const Answered answer = both(Api::Chat, body);
  if (answer.calls.empty()) {
    const Json value = Json::parse(answer.text);
    ASSERT_EQ(value.size(), 2U) << answer.text;
    EXPECT_TRUE(is_in(value[0], 0, 9) && is_in(value[1], 0, 9)) << answer.text;
    EXPECT_EQ(answer.finish, "stop");
  } else {
    EXPECT_TRUE(satisfies(answer.calls[0]));
    EXPECT_EQ(answer.finish, "calls");
  }
}

// Clients run calls only if the answer has ended with them.
TEST_F(ToolsTest, a_call_that_a_stop_string_has_cut_is_no_end_by_calls) {
  open_with("<tool_call>");
  if (!server_) return;
  Json body = request_for(Api::Chat, all_tools(Api::Chat), "pick", kEnough);
  body["stop"] = {"\"count\""};
  const Answered answer = both(Api::Chat, body);
  ASSERT_EQ(answer.calls.size(), 1U);
  EXPECT_FALSE(satisfies(answer.calls[0])) << answer.shown();
  EXPECT_EQ(answer.finish, "stop");
  body["stop"] = {"nobody writes this"};
  EXPECT_EQ(both(Api::Chat, body).finish, "calls");
}

TEST_F(ToolsTest, a_stream_of_responses_ends_each_item_as_the_response_has_it) {
  open_with("<tool_call>");
  if (!server_) return;
  RawClient client(port());
  for (const Index tokens : {Index{4}, Index{60}, kEnough}) {
    Json body = request_for(Api::Responses, all_tools(Api::Responses), "plan", tokens);
    body["stream"] = true;
    const std::string stream = client.post_json(route_of(Api::Responses), body).body;
    std::vector<Json> ends = events_of(stream, "response.completed");
    if (ends.empty()) ends = events_of(stream, "response.incomplete");
    ASSERT_EQ(ends.size(), 1U) << stream;
    const Json output = ends[0]["response"]["output"];
    const std::vector<Json> done = events_of(stream, "response.output_item.done");
    ASSERT_EQ(done.size(), output.size());
    for (std::size_t i = 0; i < done.size(); ++i) EXPECT_EQ(done[i]["item"], output[i]) << tokens;
  }
}

TEST_F(ToolsTest, the_first_token_decides_between_a_call_and_a_schema) {
  open_with("<tool_call>");
  if (!server_) return;
  Json body = request_for(Api::Chat, all_tools(Api::Chat), "auto", kEnough);
  body["response_format"] = Json::parse(R"({"type":"json_schema","json_schema":{"name":"age",
      "schema":{"type":"object","properties":{"age":{"type":"integer","minimum":1,"maximum":99}},
      "required":["age"]}}})");
  body["logit_bias"] = bias_for('<', 100);
  const Answered call = both(Api::Chat, body);
  ASSERT_EQ(call.calls.size(), 1U) << call.shown();
  EXPECT_TRUE(satisfies(call.calls[0])) << call.shown();
  EXPECT_EQ(call.finish, "calls");
  body["logit_bias"] = bias_for('<', -100);
  const Answered answer = both(Api::Chat, body);
  EXPECT_TRUE(answer.calls.empty()) << answer.shown();
  EXPECT_TRUE(is_in(Json::parse(answer.text)["age"], 1, 99)) << answer.shown();
  EXPECT_EQ(answer.finish, "stop");
}

TEST_F(ToolsTest, several_calls_follow_each_other) {
  for (const char* mark : {"<tool_call>", "[ARGS]"}) {
    open_with(mark);
    if (!server_) return;
    for (const Api api : {Api::Chat, Api::Responses}) {
      Json body = request_for(api, all_tools(api), "any", 400);
      body["parallel_tool_calls"] = true;
      // A model that may not end goes on with the next call.
      body["logit_bias"] = Json::object();
      const text::Tokenizer& tokenizer = engine_->tokenizer();
      for (const auto& id : {tokenizer.bos(), tokenizer.eos()}) {
        if (id) body["logit_bias"][concat(*id)] = -100;
      }
      const Answered answer = both(api, body);
      SCOPED_TRACE(concat(mark, route_of(api), answer.shown()));
      EXPECT_EQ(answer.finish, "length");
      ASSERT_GE(answer.calls.size(), 2U);
      std::set<std::string> ids;
      for (const ToolCall& call : answer.calls) {
        if (&call != &answer.calls.back()) {
          EXPECT_TRUE(satisfies(call)) << call.arguments;
        }
        ids.insert(call.id);
      }
      EXPECT_EQ(ids.size(), answer.calls.size());
    }
    TearDown();
    server_.reset();
  }
}

// The prompt shows all tools, but only those of the choice can be called.
TEST_F(ToolsTest, a_choice_among_several_tools_calls_one_of_these) {
  open_with("<tool_call>");
  if (!server_) return;
  for (const Api api : {Api::Chat, Api::Responses}) {
    Json body = request_for(api, all_tools(api), "any", kEnough);
    Json tools = Json::array();
    for (const char* name : {"pick", "code"}) tools.push_back(choice_of(api, name));
    const Json allowed = {{"mode", "required"}, {"tools", tools}};
    body["tool_choice"] = {{"type", "allowed_tools"}};
    if (api == Api::Chat) {
      body["tool_choice"]["allowed_tools"] = allowed;
    } else {
      body["tool_choice"].update(allowed);
    }
    for (int seed = 0; seed < 6; ++seed) {
      body["seed"] = seed;
      body["temperature"] = 2;
      const Answered answer = both(api, body);
      ASSERT_EQ(answer.calls.size(), 1U) << answer.shown();
      EXPECT_THAT(answer.calls[0].name, testing::AnyOf("pick", "code")) << answer.shown();
      EXPECT_TRUE(satisfies(answer.calls[0])) << answer.shown();
    }
    RawClient client(port());
    Json& list = api == Api::Chat ? body["tool_choice"]["allowed_tools"] : body["tool_choice"];
    list["tools"] = Json::array();
    EXPECT_EQ(client.post_json(route_of(api), body).status, 400) << "none is allowed";
    list["tools"] = Json::array({choice_of(api, "nobody")});
    EXPECT_THAT(client.post_json(route_of(api), body).body, HasSubstr("nobody"));
    list["mode"] = "maybe";
    EXPECT_THAT(client.post_json(route_of(api), body).body, HasSubstr("mode"));
  }
}

TEST_F(ToolsTest, calls_have_ids_of_nine_letters_and_digits) {
  open_with("<tool_call>");
  if (!server_) return;
  const auto is_id = [](const std::string& id) {
    return id.size() == 9 &&
           std::ranges::all_of(id, [](unsigned char c) { return std::isalnum(c) != 0; });
  };
  std::set<std::string> seen;
  for (const Api api : kApis) {
    for (int run = 0; run < 2; ++run) {
      const Answered answer = both(api, request_for(api, all_tools(api), "any", kEnough));
      ASSERT_EQ(answer.calls.size(), 1U);
      EXPECT_TRUE(is_id(answer.calls[0].id)) << answer.calls[0].id;
      EXPECT_TRUE(seen.insert(answer.calls[0].id).second) << "an id comes again";
    }
  }
  Json body = request_for(Api::Chat, all_tools(Api::Chat), "any", kEnough);
  body["n"] = 3;
  RawClient client(port());
  const Json json = client.post_json(route_of(Api::Chat), body).json();
  ASSERT_EQ(json["choices"].size(), 3U);
  for (const Json& choice : json["choices"]) {
    const std::string id = choice["message"]["tool_calls"][0]["id"];
    EXPECT_TRUE(is_id(id)) << id;
    EXPECT_TRUE(seen.insert(id).second) << "an id comes again";
  }
}

TEST_F(ToolsTest, nothing_but_null_is_beside_calls) {
  open_with("<tool_call>");
  if (!server_) return;
  RawClient client(port());
  const auto ask = [&](Api api) {
    return client.post_json(route_of(api), request_for(api, all_tools(api), "any", kEnough)).json();
  };
  const Json message = ask(Api::Chat)["choices"][0]["message"];
  ASSERT_TRUE(message.contains("content"));
  EXPECT_TRUE(message["content"].is_null()) << message;
  EXPECT_EQ(message["role"], "assistant");
  const Json content = ask(Api::Messages)["content"];
  ASSERT_EQ(content.size(), 1U);
  EXPECT_EQ(content[0]["type"], "tool_use");
  EXPECT_TRUE(content[0]["input"].is_object());
  const Json output = ask(Api::Responses)["output"];
  ASSERT_EQ(output.size(), 1U);
  EXPECT_EQ(output[0]["type"], "function_call");
  EXPECT_EQ(output[0]["status"], "completed");
}

TEST_F(ToolsTest, tools_that_must_not_be_called_change_nothing) {
  open_with("<tool_call>");
  if (!server_) return;
  for (const Api api : kApis) {
    Json body = request_for(api, all_tools(api), "none", 30);
    const Answered with = both(api, body);
    EXPECT_TRUE(with.calls.empty());
    EXPECT_NE(with.text, "");
    body.erase("tools");
    body.erase("tool_choice");
    EXPECT_EQ(both(api, body).text, with.text);
  }
}

TEST_F(ToolsTest, a_text_may_come_instead_of_calls) {
  open_with("<tool_call>");
  if (!server_) return;
  for (const Api api : kApis) {
    const Answered answer = both(api, request_for(api, all_tools(api), "auto", 30));
    EXPECT_TRUE(answer.calls.empty());
    EXPECT_NE(answer.text, "");
    EXPECT_EQ(answer.finish, "length");
  }
}

TEST_F(ToolsTest, tools_are_told_to_models_whose_template_shows_none) {
  open();
  if (!server_) return;
  RawClient client(port());
  Json tools = Json::array({tool_of(Api::Messages, "pick", tool_schemas().at("pick"))});
  Json body = request_for(Api::Messages, tools, "auto", 10);
  const auto count = [&] {
    return client.post_json("/v1/messages/count_tokens", body).json()["input_tokens"].get<Index>();
  };
  const Index with = count();
  body.erase("tools");
  EXPECT_GT(with, count() + 100);
  body["tools"] = std::move(tools);
  body["tool_choice"] = choice_of(Api::Messages, "pick");
  body["max_tokens"] = 120;
  const Answered answer = both(Api::Messages, body);
  ASSERT_FALSE(answer.calls.empty());
  EXPECT_TRUE(satisfies(answer.calls[0])) << answer.shown();
}

struct WrongRequest {
  std::function<void(Json&)> change;
  std::string param;    // empty: the error names none
  std::string message;  // a part of it
};

std::vector<WrongRequest> wrong_chats() {
  const auto set = [](const char* name, const Json& value) {
    return [name, value](Json& body) { body[name] = value; };
  };
  const auto set_function = [](const char* name, const Json& value) {
    return [name, value](Json& body) { body["tools"][0]["function"][name] = value; };
  };
  const Json tool = tool_of(Api::Chat, "pick", tool_schemas().at("pick"));
  Json many = Json::array();
  for (int i = 0; i < 129; ++i) many.push_back(tool_of(Api::Chat, concat("f", i), Json::object()));
  return {
      {set("tool_choice", choice_of(Api::Chat, "nobody")), "tool_choice", "nobody"},
      {set("tool_choice", "maybe"), "tool_choice", "required"},
      {set("tool_choice", 5), "tool_choice", "object"},
      {set("tool_choice", Json::parse(R"({"type":"function"})")), "tool_choice.function", "name"},
      {[](Json& body) { body.erase("tools"); }, "tool_choice", "no tools"},
      {set("tools", Json::array()), "tool_choice", "no tools"},
      {set("tools", 5), "tools", "array"},
      {set("tools", Json::array({5})), "tools[0]", "object"},
      {set("tools", Json::array({tool, tool})), "tools[1].function.name", "no other"},
      {set("tools", many), "tools", "128"},
      {set("tools", Json::parse(R"([{"type":"web_search"}])")), "tools[0].type", "function"},
      {set("tools", Json::parse(R"([{"type":"function"}])")), "tools[0].function", "object"},
      {set_function("name", ""), "tools[0].function.name", "bytes"},
      {set_function("name", std::string(129, 'a')), "tools[0].function.name", "128"},
      {set_function("name", "a\nb"), "tools[0].function.name", "control"},
      {set_function("name", 7), "tools[0].function.name", "string"},
      {set_function("parameters", "{}"), "tools[0].function.parameters", "schema"},
      {set_function("strict", "yes"), "tools[0].function.strict", "true"},
      {set_function("parameters", Json::parse(R"({"type":"strange"})")), "",
       "tools[0].function.parameters"},
      {set_function("parameters", Json::parse(R"({"type":"object","required":["a"],
           "properties":{"a":false}})")),
       "", "tools[0].function.parameters: No value"},
      {set("parallel_tool_calls", "no"), "parallel_tool_calls", "true"},
      {set("functions", Json::array({5})), "functions", "support"},
  };
}

TEST_F(ToolsTest, names_what_is_wrong_with_tools) {
  open_with("<tool_call>");
  if (!server_) return;
  const Json tools = Json::array({tool_of(Api::Chat, "pick", tool_schemas().at("pick"))});
  for (const WrongRequest& wrong : wrong_chats()) {
    Json body = request_for(Api::Chat, tools, "any", 4);
    ASSERT_EQ(refusal(Api::Chat, body).first, 200);
    wrong.change(body);
    const auto [status, error] = refusal(Api::Chat, body);
    SCOPED_TRACE(body.dump().substr(0, 400));
    ASSERT_EQ(status, 400);
    EXPECT_EQ(error["type"], "invalid_request_error");
    if (!wrong.param.empty()) {
      EXPECT_EQ(error["param"], wrong.param);
    }
    EXPECT_THAT(error["message"].get<std::string>(), HasSubstr(wrong.message));
  }
  Json most = Json::array();
  for (int i = 0; i < 128; ++i) most.push_back(tool_of(Api::Chat, concat("f", i), Json::object()));
  EXPECT_EQ(refusal(Api::Chat, request_for(Api::Chat, most, "any", 4)).first, 200);
}

TEST_F(ToolsTest, names_what_is_wrong_with_tools_in_the_other_apis) {
  open_with("<tool_call>");
  if (!server_) return;
  for (const Api api : {Api::Messages, Api::Responses}) {
    const Json tool = tool_of(api, "pick", tool_schemas().at("pick"));
    const std::vector<std::pair<Json, std::string>> wrong = {
        {request_for(api, Json::array({tool}), "nobody", 4), "tool_choice"},
        {request_for(api, Json::array(), "any", 4), "tool_choice"},
        {request_for(api, Json::array({tool, tool}), "any", 4), "tools[1].name"},
        {request_for(api, 5, "any", 4), "tools"}};
    for (const auto& [body, param] : wrong) {
      const auto [status, error] = refusal(api, body);
      EXPECT_EQ(status, 400) << body;
      EXPECT_EQ(error["param"], param) << body;
    }
  }
}

// "not" is a keyword that is not enforced.
TEST_F(ToolsTest, a_strict_tool_is_refused_where_another_is_told_what_is_ignored) {
  open_with("<tool_call>");
  if (!server_) return;
  RawClient client(port());
  const Json schema = Json::parse(R"({"type":"object","properties":{"n":{"type":"integer",
      "minimum":0,"maximum":9,"not":{"const":3}}},"required":["n"]})");
  for (const Api api : kApis) {
    const std::string place = concat(schema_path(api), "/properties/n");
    for (const bool streams : {false, true}) {
      Json body = request_for(api, Json::array({tool_of(api, "f", schema)}), "any", kEnough);
      if (streams) body["stream"] = true;
      const HttpAnswer answer = client.post_json(route_of(api), body);
      ASSERT_EQ(answer.status, 200) << answer.body;
      ASSERT_TRUE(answer.fields.contains("x-hone-ignored"));
      EXPECT_EQ(answer.fields.at("x-hone-ignored"), place + "/not");
      if (streams) continue;
      const Answered read = whole_answer(api, answer.json());
      ASSERT_EQ(read.calls.size(), 1U) << answer.body;
      EXPECT_TRUE(is_in(Json::parse(read.calls[0].arguments)["n"], 0, 9)) << answer.body;
    }
    const Json strict = Json::array({tool_of(api, "f", schema, true)});
    for (const char* choice : {"any", "auto"}) {
      const auto [status, error] = refusal(api, request_for(api, strict, choice, 4));
      EXPECT_EQ(status, 400);
      EXPECT_THAT(error["message"].get<std::string>(), HasSubstr(place));
      EXPECT_THAT(error["message"].get<std::string>(), HasSubstr("\"not\""));
    }
  }
}

Json chat_with_history(const Json& arguments) {
  Json messages = Json::array();
  const Json function = {{"name", "pick"}, {"arguments", arguments}};
  Json call = {{"id", "abcdefghi"}, {"type", "function"}, {"function", function}};
  messages.push_back({{"role", "user"}, {"content", "Hello"}});
  messages.push_back({{"role", "assistant"},
                      {"content", nullptr},
                      {"tool_calls", Json::array({std::move(call)})}});
  messages.push_back({{"role", "tool"}, {"tool_call_id", "abcdefghi"}, {"content", "done"}});
  return {{"messages", std::move(messages)}, {"max_tokens", 2}};
}

constexpr const char* kPrintingTemplate =
    "{% for m in messages %}{{ m.role }}: {{ m.content }}{% for c in m.tool_calls or [] %}"
    "{{ c.function.name }} {{ c.function.arguments | tojson }}{% endfor %}\n{% endfor %}"
    "{# tools #}assistant:";

TEST_F(ToolsTest, what_a_model_has_written_wrongly_is_read_again) {
  std::string deep;
  for (int i = 0; i < 10000; ++i) deep += "{\"a\":";
  for (const std::string& chat_template :
       {std::string(test::kStoriesTemplate), template_with("<tool_call>"),
        std::string(kPrintingTemplate)}) {
    open({}, {}, chat_template);
    if (!server_) return;
    for (const Json& arguments :
         {Json("{not json"), Json(""), Json("{\"a\": 1"), Json("[1]"), Json("null"), Json("{}{}"),
          Json("{\"a\": 1, \"a\": 2}"), Json(std::string("\0", 1)), Json(nullptr),
          Json(Json::object())}) {
      const auto [status, error] = refusal(Api::Chat, chat_with_history(arguments));
      EXPECT_EQ(status, 200) << arguments << error;
    }
    // What is nested deeply is a text like any other, which does not fit if it is shown.
    const bool is_shown = chat_template != template_with("<tool_call>");
    for (const std::string& text : {deep, std::string(10000, '[')}) {
      const auto [status, error] = refusal(Api::Chat, chat_with_history(text));
      EXPECT_EQ(status, is_shown ? 400 : 200) << error;
      if (is_shown) {
        EXPECT_EQ(error["code"], "context_length_exceeded");
      }
    }
    TearDown();
    server_.reset();
  }
}

TEST_F(ToolsTest, a_history_of_calls_is_read_in_the_other_apis) {
  open({}, {}, kPrintingTemplate);
  if (!server_) return;
  Json body = {{"max_output_tokens", 2}};
  for (const char* arguments : {"{not json", "{\"color\": \"red\"}", ""}) {
    body["input"] = Json::array();
    body["input"].push_back({{"role", "user"}, {"content", "Hello"}});
    body["input"].push_back(
        {{"type", "function_call"}, {"call_id", "a"}, {"name", "pick"}, {"arguments", arguments}});
    body["input"].push_back(
        {{"type", "function_call_output"}, {"call_id", "a"}, {"output", "done"}});
    EXPECT_EQ(refusal(Api::Responses, body).first, 200) << arguments;
  }
  body = Json::parse(R"({"max_tokens": 2, "messages": [{"role": "user", "content": "Hello"},
      {"role": "assistant", "content": [{"type": "text", "text": "I look."},
        {"type": "tool_use", "id": "a", "name": "pick", "input": {"color": "red"}}]},
      {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "a",
        "content": [{"type": "text", "text": "done"}]}]}]})");
  EXPECT_EQ(refusal(Api::Messages, body).first, 200);
  body["messages"][2]["content"][0].erase("tool_use_id");
  const auto [status, error] = refusal(Api::Messages, body);
  EXPECT_EQ(status, 400);
  EXPECT_EQ(error["param"], "messages[2].content[0].tool_use_id");
}

// A body that asks for a schema, in the words of the API.
Json schema_request(Api api, const Json& schema) {
  Json body = request_for(api, Json::array(), "auto", kEnough);
  body.erase("tools");
  body.erase("tool_choice");
  if (api == Api::Chat) {
    const Json named = {{"name", "x"}, {"schema", schema}};
    body["response_format"] = {{"type", "json_schema"}, {"json_schema", named}};
  } else {
    const Json format = {{"type", "json_schema"}, {"name", "x"}, {"schema", schema}};
    body["text"] = {{"format", format}};
  }
  return body;
}

TEST_F(ToolsTest, patterns_and_formats_of_a_schema_hold) {
  open();
  if (!server_) return;
  const std::vector<std::pair<Json, const char*>> texts = {
      {{{"pattern", "^[a-c]{3}-[0-9]{2}$"}}, "[a-c]{3}-[0-9]{2}"},
      {{{"pattern", "^(x|yz)+$"}, {"maxLength", 5}}, "(x|yz)+"},
      {{{"format", "date"}}, "\\d{4}-\\d\\d-\\d\\d"},
      {{{"format", "uuid"}}, "[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}"},
      {{{"format", "ipv4"}}, "\\d{1,3}(\\.\\d{1,3}){3}"}};
  for (const Api api : {Api::Chat, Api::Responses}) {
    for (const auto& [keywords, pattern] : texts) {
      Json schema = {{"type", "string"}};
      schema.update(keywords);
      const Answered answer = both(api, schema_request(api, schema));
      EXPECT_EQ(answer.finish, "stop") << schema;
      const Json value = Json::parse(answer.text, nullptr, false);
      EXPECT_TRUE(is_text_like(value, pattern)) << schema << " " << answer.text;
    }
    const Json unknown = {{"type", "string"}, {"format", "zodiac-sign"}};
    const auto [status, error] = refusal(api, schema_request(api, unknown));
    EXPECT_EQ(status, 400);
    EXPECT_THAT(error["message"].get<std::string>(), HasSubstr("zodiac-sign"));
  }
}

TEST_F(ToolsTest, a_stop_string_ends_a_text_of_a_schema) {
  open();
  if (!server_) return;
  Json body = schema_request(Api::Chat, {{"const", "abcdef"}});
  EXPECT_EQ(both(Api::Chat, body).text, "\"abcdef\"");
  body["stop"] = {"zz", "cd"};
  const Answered answer = both(Api::Chat, body);
  EXPECT_EQ(answer.text, "\"ab");
  EXPECT_EQ(answer.finish, "stop");
  body["ignore_eos"] = true;
  EXPECT_EQ(refusal(Api::Chat, body).first, 400);
}

TEST_F(ToolsTest, what_follows_an_open_tag_is_reasoning) {
  const std::string thinks = concat("{# </think> tools #}", test::kStoriesTemplate, "<think>\n");
  open({}, {}, thinks);
  if (!server_) return;
  RawClient client(port());
  for (const Api api : kApis) {
    Json body = request_for(api, Json::array(), "auto", 30);
    body.erase("tools");
    body.erase("tool_choice");
    const Answered answer = both(api, body);
    EXPECT_EQ(answer.text, "") << answer.shown();
    EXPECT_GT(answer.reasoning.size(), 20U) << answer.shown();
    // A call that must come waits for the end of the reasoning.
    const Answered called = both(api, request_for(api, all_tools(api), "any", 30));
    EXPECT_EQ(called.reasoning, answer.reasoning);
    EXPECT_TRUE(called.calls.empty());
    EXPECT_EQ(called.finish, "length");
  }
}

TEST_F(ToolsTest, a_stream_has_the_log_probabilities_of_all_tokens_of_a_call) {
  open_with("<tool_call>");
  if (!server_) return;
  Json body = request_for(Api::Chat, all_tools(Api::Chat), "pick", kEnough);
  body["logprobs"] = true;
  RawClient client(port());
  const Json whole = client.post_json(route_of(Api::Chat), body).json();
  const Json& want = whole["choices"][0]["logprobs"]["content"];
  EXPECT_EQ(want.size(), whole["usage"]["completion_tokens"].get<std::size_t>());
  body["stream"] = true;
  Json got = Json::array();
  for (const Json& piece : pieces_of(client.post_json(route_of(Api::Chat), body).body)) {
    const Json& logprobs = piece["choices"][0]["logprobs"];
    if (logprobs.is_null()) continue;
    for (const Json& one : logprobs["content"]) got.push_back(one);
  }
  ASSERT_EQ(got.size(), want.size());
  for (std::size_t i = 0; i < want.size(); ++i) {
    EXPECT_EQ(got[i]["token"], want[i]["token"]);
    EXPECT_NEAR(got[i]["logprob"].get<double>(), want[i]["logprob"].get<double>(), 1e-4);
  }
}

}  // namespace
}  // namespace hone::server
