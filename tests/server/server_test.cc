// SPDX-License-Identifier: Apache-2.0
// The tiny real model of HONE_TEST_DATA behind HTTP.
#include "hone/server/server.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <future>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "hone/server/api/api_error.h"
#include "tests/server/http_client.h"
#include "tests/server/stories_server.h"
#include "tests/support/error_of.h"
#include "tests/support/test_data.h"

namespace hone::server {
namespace {

using test::events_of;
using test::HttpAnswer;
using test::pieces_of;
using test::RawClient;
using testing::HasSubstr;

class ServerTest : public test::StoriesServer {};

TEST_F(ServerTest, completes_as_the_engine_does) {
  open();
  if (!server_) return;
  RawClient client(port());
  const HttpAnswer answer = client.post_json("/v1/completions", greedy(20));
  ASSERT_EQ(answer.status, 200) << answer.body;
  const Json json = answer.json();
  EXPECT_THAT(json["choices"][0]["text"].get<std::string>(), HasSubstr("there was a"));
  EXPECT_EQ(json["usage"]["completion_tokens"], 20);
  EXPECT_EQ(json["choices"][0]["finish_reason"], "length");
}

TEST_F(ServerTest, streams_the_same_text_and_its_usage) {
  open();
  if (!server_) return;
  RawClient client(port());
  Json body = greedy(40);
  const std::string whole = client.post_json("/v1/completions", body).json()["choices"][0]["text"];
  body["stream"] = true;
  body["stream_options"] = {{"include_usage", true}};
  const HttpAnswer answer = client.post_json("/v1/completions", body);
  EXPECT_THAT(answer.fields.at("content-type"), HasSubstr("event-stream"));
  std::string text;
  Json usage;
  for (const Json& piece : pieces_of(answer.body)) {
    if (!piece["choices"].empty()) text += piece["choices"][0]["text"].get<std::string>();
    if (!piece["usage"].is_null()) usage = piece["usage"];
  }
  EXPECT_EQ(text, whole);
  EXPECT_EQ(usage["completion_tokens"], 40);
}

TEST_F(ServerTest, chats_in_the_words_of_the_template) {
  open();
  if (!server_) return;
  RawClient client(port());
  const Json messages = {
      {{"role", "system"}, {"content", "Be brief."}},
      {{"role", "user"},
       {"content",
        {{{"type", "text"}, {"text", "Hello"}}, {{"type", "text"}, {"text", "there"}}}}}};
  const Json prompt = client.post_json("/apply-template", {{"messages", messages}}).json();
  EXPECT_EQ(prompt["prompt"], "system: Be brief.\nuser: Hello\nthere\nassistant:");
  const Json body = {{"messages", messages}, {"max_tokens", 8}, {"stream", true}};
  const std::vector<Json> pieces = pieces_of(client.post_json("/v1/chat/completions", body).body);
  EXPECT_EQ(pieces.front()["choices"][0]["delta"]["role"], "assistant");
  EXPECT_EQ(pieces.back()["choices"][0]["finish_reason"], "length");
}

TEST_F(ServerTest, answers_several_prompts_and_choices) {
  open();
  if (!server_) return;
  RawClient client(port());
  const Json body = {{"prompt", {"Once", "Tom"}}, {"n", 3}, {"max_tokens", 6}, {"seed", 5}};
  const Json json = client.post_json("/v1/completions", body).json();
  ASSERT_EQ(json["choices"].size(), 6U);
  EXPECT_NE(json["choices"][0]["text"], json["choices"][1]["text"]);
  EXPECT_EQ(json["usage"]["completion_tokens"], 36);
  EXPECT_EQ(client.post_json("/v1/completions", body).json()["choices"], json["choices"]);
}

TEST_F(ServerTest, names_the_field_that_is_wrong) {
  open();
  if (!server_) return;
  RawClient client(port());
  const auto refusal = [&](const Json& body, std::string_view path = "/v1/completions") {
    const HttpAnswer answer = client.post_json(path, body);
    return std::pair(answer.status, answer.json()["error"]);
  };
  const std::vector<std::pair<Json, std::string>> wrong = {
      {{{"prompt", 5}}, "prompt"},
      {{{"prompt", Json::array({99999})}}, "prompt"},
      {{{"prompt", "a"}, {"temperature", -1}}, "temperature"},
      {{{"prompt", "a"}, {"temperature", "hot"}}, "temperature"},
      {{{"prompt", "a"}, {"max_tokens", 0}}, "max_tokens"},
      {{{"prompt", "a"}, {"n", 17}}, "n"},
      {{{"prompt", "a"}, {"stop", 3}}, "stop"},
      {{{"prompt", "a"}, {"logit_bias", {{"x", 1}}}}, "logit_bias"},
      {{{"prompt", "a"}, {"suffix", "b"}}, "suffix"},
      {{{"prompt", "a"}, {"guided_json", {{"type", "object"}}}}, "guided_json"},
      {{{"prompt", "a"}, {"response_format", {{"type", "xml"}}}}, "response_format.type"}};
  for (const auto& [body, param] : wrong) {
    const auto [status, error] = refusal(body);
    EXPECT_EQ(status, 400) << body;
    EXPECT_EQ(error["param"], param) << body;
    EXPECT_EQ(error["type"], "invalid_request_error");
  }
  const auto [status, error] =
      refusal({{"messages", {{{"role", "king"}, {"content", "x"}}}}}, "/v1/chat/completions");
  EXPECT_EQ(status, 400);
  EXPECT_EQ(error["param"], "messages[0].role");
  const Json silent = refusal({{"messages", {{{"role", "user"}}}}}, "/v1/chat/completions").second;
  EXPECT_EQ(silent["param"], "messages[0].content");
  const Json audio = refusal({{"messages", {{{"role", "user"}, {"content", "x"}}}},
                              {"modalities", {"text", "audio"}}},
                             "/v1/chat/completions")
                         .second;
  EXPECT_EQ(audio["param"], "modalities");
  std::string text;
  for (int i = 0; i < 2000; ++i) text += "word ";
  const Json full = refusal({{"prompt", text}}).second;
  EXPECT_EQ(full["code"], "context_length_exceeded");
  EXPECT_THAT(full["message"].get<std::string>(), HasSubstr("exceeds the available context size"));
}

TEST_F(ServerTest, refuses_bodies_paths_and_methods) {
  open();
  if (!server_) return;
  RawClient client(port());
  EXPECT_EQ(client.post("/v1/completions", "{\"prompt\": ").status, 400);
  EXPECT_EQ(client.post("/v1/completions", "[]").status, 400);
  EXPECT_EQ(client.post("/v1/completions", std::string(100, '[')).status, 400);
  EXPECT_EQ(client.post("/v1/nothing", "{}").status, 404);
  const HttpAnswer wrong = client.get("/v1/completions");
  EXPECT_EQ(wrong.status, 405);
  EXPECT_EQ(wrong.fields.at("allow"), "POST");
  EXPECT_EQ(client.get("/v1/models/stories").json()["id"], "stories");
  EXPECT_EQ(client.get("/v1/models/other").json()["error"]["code"], "model_not_found");
  EXPECT_EQ(client.post_json("/v1/completions", {{"prompt", "a"}, {"max_tokens", 100000}}).status,
            200);
  EXPECT_EQ(client.post_json("/v1/completions", {{"prompt", "a"}, {"model", "other"}}).status, 404);
  client.send("POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: 2\r\n\r\n{}");
  EXPECT_EQ(client.read().status, 415);
}

TEST_F(ServerTest, names_fields_that_it_ignores) {
  open();
  if (!server_) return;
  RawClient client(port());
  Json body = greedy(1);
  body["frobnicate"] = 1;
  body["user"] = "me";
  EXPECT_EQ(client.post_json("/v1/completions", body).fields.at("x-hone-ignored"), "frobnicate");
  const auto ignored = [&](const char* path, const char* text) {
    const HttpAnswer answer = client.post(path, text);
    EXPECT_EQ(answer.status, 200) << answer.body;
    return answer.fields.contains("x-hone-ignored") ? answer.fields.at("x-hone-ignored") : "";
  };
  EXPECT_EQ(ignored("/v1/responses",
                    R"({"input": "a", "max_output_tokens": 1, "tools": [{"type": "web_search"}]})"),
            "tools[0]");
  EXPECT_EQ(ignored("/v1/responses", R"({"input": "a", "max_output_tokens": 1, "store": true})"),
            "store");
  EXPECT_EQ(ignored("/v1/responses", R"({"input": "a", "max_output_tokens": 1, "store": false})"),
            "");
  EXPECT_EQ(ignored("/v1/messages",
                    R"({"messages": [{"role": "user", "content": "a"}], "max_tokens": 1,
                        "thinking": {"type": "enabled", "budget_tokens": 1024},
                        "tools": [{"type": "bash_20250124", "name": "bash"}]})"),
            "thinking, tools[0]");
}

TEST_F(ServerTest, scores_the_prompt_that_it_echoes) {
  open();
  if (!server_) return;
  RawClient client(port());
  const std::vector<infer::TokenId> ids = engine_->tokenizer().encode("Tom went home");
  const Json body = {{"prompt", Json::array({ids})},
                     {"echo", true},
                     {"logprobs", 1},
                     {"max_tokens", 1},
                     {"temperature", 0}};
  const Json json = client.post_json("/v1/completions", body).json();
  const Json& parts = json["choices"][0]["logprobs"];
  ASSERT_EQ(parts["tokens"].size(), ids.size() + 1);
  EXPECT_TRUE(parts["token_logprobs"][0].is_null());
  std::promise<infer::ScoreResult> scored;
  engine_->post([&](infer::Engine& engine) { scored.set_value(engine.score(ids)); });
  const std::vector<double> want = scored.get_future().get().logprobs;
  for (std::size_t i = 0; i < want.size(); ++i) {
    const double got = parts["token_logprobs"][i + 1];
    EXPECT_NEAR(got, want[i], 1e-5);
    EXPECT_EQ(parts["top_logprobs"][i + 1][parts["tokens"][i + 1].get<std::string>()], got);
  }
}

TEST_F(ServerTest, embeds_texts_as_numbers_and_base64) {
  open();
  if (!server_) return;
  RawClient client(port());
  Json body = {{"input", {"Tom went home", "Once upon a time"}}};
  const Json data = client.post_json("/v1/embeddings", body).json()["data"];
  ASSERT_EQ(data.size(), 2U);
  const auto vector = data[0]["embedding"].get<std::vector<float>>();
  double squares = 0;
  for (const float x : vector) squares += static_cast<double>(x) * x;
  EXPECT_NEAR(squares, 1, 1e-5);
  EXPECT_NE(data[0]["embedding"], data[1]["embedding"]);
  body["encoding_format"] = "base64";
  const std::string text = client.post_json("/v1/embeddings", body).json()["data"][0]["embedding"];
  EXPECT_EQ(text.size(), (vector.size() * 4 + 2) / 3 * 4);
  std::vector<std::string> many(100, "Once");
  many[99] = "Upon";
  const Json all = client.post_json("/v1/embeddings", {{"input", many}}).json()["data"];
  ASSERT_EQ(all.size(), 100U);
  EXPECT_EQ(all[0]["embedding"], all[98]["embedding"]);
  EXPECT_NE(all[0]["embedding"], all[99]["embedding"]);
  EXPECT_EQ(all[99]["index"], 99);
}

TEST_F(ServerTest, embeds_between_the_steps_of_running_texts) {
  open();
  if (!server_) return;
  Json text = greedy(200);
  text["ignore_eos"] = true;
  RawClient writer(port()), client(port());
  writer.send(RawClient::post_text("/v1/completions", text.dump()));
  ASSERT_TRUE(eventually([&] { return engine_->stats().running == 1; }));
  const Index before = engine_->stats().steps;
  const Json input = std::vector<std::string>(40, "Once upon a time there was a cat");
  EXPECT_EQ(client.post_json("/v1/embeddings", {{"input", input}}).status, 200);
  EXPECT_GE(engine_->stats().steps, before + 40) << "a step for each input";
  EXPECT_EQ(writer.read().status, 200);
}

TEST_F(ServerTest, speaks_the_messages_api) {
  open();
  if (!server_) return;
  RawClient client(port());
  Json body = {{"system",
                {{{"type", "text"}, {"text", "x-anthropic-billing-header: 17"}},
                 {{"type", "text"}, {"text", "Be brief."}}}},
               {"messages", {{{"role", "user"}, {"content", "Hello"}}}},
               {"max_tokens", 12},
               {"temperature", 0}};
  const Json whole = client.post_json("/v1/messages", body).json();
  EXPECT_EQ(whole["type"], "message");
  EXPECT_EQ(whole["stop_reason"], "max_tokens");
  const std::string prompt = "system: Be brief.\nuser: Hello\nassistant:";
  const Json count = client.post_json("/v1/messages/count_tokens", body).json();
  EXPECT_EQ(count["input_tokens"], engine_->tokenizer().encode(prompt).size());
  Json structured = body;
  structured["output_config"] = Json::parse(R"({"format": {"type": "json_schema", "schema":
      {"type": "object", "properties": {"age": {"type": "integer", "minimum": 10, "maximum": 99}},
       "required": ["age"]}}})");
  structured["max_tokens"] = 60;
  const Json answer = client.post_json("/v1/messages", structured).json();
  const Json value = Json::parse(answer["content"][0]["text"].get<std::string>());
  EXPECT_GE(value["age"], 10);
  EXPECT_LE(value["age"], 99);
  body["stream"] = true;
  const std::string stream = client.post_json("/v1/messages", body).body;
  std::string text;
  for (const Json& one : events_of(stream, "content_block_delta")) {
    text += one["delta"]["text"].get<std::string>();
  }
  EXPECT_EQ(text, whole["content"][0]["text"]);
  EXPECT_EQ(events_of(stream, "message_delta")[0]["delta"]["stop_reason"], "max_tokens");
  EXPECT_EQ(events_of(stream, "message_stop").size(), 1U);
  const HttpAnswer refused = client.post_json("/v1/messages", {{"messages", 5}});
  EXPECT_EQ(refused.status, 400);
  EXPECT_EQ(refused.json()["type"], "error");
}

TEST_F(ServerTest, speaks_the_responses_api) {
  open();
  if (!server_) return;
  RawClient client(port());
  Json body = {{"input", "Hello"}, {"max_output_tokens", 10}, {"temperature", 0}};
  const Json whole = client.post_json("/v1/responses", body).json();
  EXPECT_EQ(whole["status"], "incomplete");
  EXPECT_EQ(whole["usage"]["output_tokens"], 10);
  body["stream"] = true;
  const std::string stream = client.post_json("/v1/responses", body).body;
  std::string text;
  for (const Json& one : events_of(stream, "response.output_text.delta")) {
    text += one["delta"].get<std::string>();
  }
  EXPECT_EQ(text, whole["output"][0]["content"][0]["text"]);
  EXPECT_EQ(events_of(stream, "response.incomplete")[0]["response"]["output"][0]["content"],
            whole["output"][0]["content"]);
  body["previous_response_id"] = "resp_1";
  EXPECT_EQ(client.post_json("/v1/responses", body).status, 400);
  EXPECT_EQ(client.post_json("/v1/responses", {{"input", Json::array()}, {"max_output_tokens", 1}})
                .status,
            200);
}

TEST_F(ServerTest, keeps_strangers_out) {
  ServerOptions options;
  options.keys = {{.name = "a", .key = "secret-key"}};
  open(options);
  if (!server_) return;
  RawClient client(port());
  EXPECT_EQ(client.get("/v1/models").status, 401);
  EXPECT_EQ(client.get("/v1/models", "Authorization: Bearer wrong-key!\r\n").status, 401);
  EXPECT_EQ(client.get("/v1/models", "Authorization: Bearer secret-key\r\n").status, 200);
  EXPECT_EQ(client.get("/v1/models", "X-Api-Key: secret-key\r\n").status, 200);
  EXPECT_EQ(client.get("/nothing").status, 401);
  EXPECT_EQ(client.get("/metrics").status, 401);
  EXPECT_EQ(client.get("/readyz").status, 200);
}

TEST_F(ServerTest, refuses_other_hosts_and_origins_on_a_loopback_address) {
  open();
  if (!server_) return;
  RawClient client(port());
  EXPECT_EQ(client.get("/v1/models", "Origin: http://evil.example\r\n").status, 403);
  EXPECT_EQ(client.get("/v1/models", "Origin: null\r\n").status, 403);
  EXPECT_EQ(client.get("/v1/models", "Origin: http://localhost:3000\r\n").status, 200);
  client.send("GET /v1/models HTTP/1.1\r\nHost: evil.example\r\n\r\n");
  EXPECT_EQ(client.read().status, 403);
}

TEST_F(ServerTest, frees_a_text_whose_client_goes_away) {
  open();
  if (!server_) return;
  RawClient client(port());
  Json body = greedy(400);
  body["ignore_eos"] = true;
  body["stream"] = true;
  client.send(RawClient::post_text("/v1/completions", body.dump()));
  ASSERT_TRUE(client.receive());
  client.close();
  EXPECT_TRUE(eventually([&] {
    const infer::EngineStats stats = engine_->stats();
    return stats.running == 0 && stats.cancelled + stats.succeeded == 1;
  }));
}

// Also one that goes before its request has been read.
TEST_F(ServerTest, clients_that_go_at_once_leave_the_server_well) {
  open();
  if (!server_) return;
  for (int i = 0; i < 100; ++i) {
    RawClient client(port());
    Json body = greedy(4);
    body["stream"] = i % 2 == 0;
    client.send(RawClient::post_text("/v1/completions", body.dump()));
  }
  EXPECT_EQ(RawClient(port()).post_json("/v1/completions", greedy(4)).status, 200);
  EXPECT_TRUE(eventually([&] {
    const infer::EngineStats stats = engine_->stats();
    return stats.running == 0 && stats.waiting == 0;
  }));
}

TEST_F(ServerTest, says_when_too_many_wait) {
  open({}, {.max_queue = 1, .max_sequences = 1});
  if (!server_) return;
  std::vector<std::unique_ptr<RawClient>> clients;
  Json body = greedy(300);
  body["ignore_eos"] = true;
  for (int i = 0; i < 12; ++i) {
    clients.push_back(std::make_unique<RawClient>(port()));
    clients.back()->send(RawClient::post_text("/v1/completions", body.dump()));
  }
  int done = 0, refused = 0;
  for (const auto& client : clients) {
    const HttpAnswer answer = client->read();
    done += answer.status == 200 ? 1 : 0;
    if (answer.status != 429) continue;
    ++refused;
    EXPECT_EQ(answer.json()["error"]["code"], "queue_full");
    const int seconds = std::stoi(answer.fields.at("retry-after"));
    EXPECT_TRUE(seconds >= 1 && seconds <= 120) << seconds;
  }
  EXPECT_EQ(done + refused, 12);
  EXPECT_GT(done, 0);
  EXPECT_GT(refused, 0);
}

TEST_F(ServerTest, counts_every_text_once) {
  open();
  if (!server_) return;
  RawClient client(port());
  for (int i = 0; i < 3; ++i) client.post_json("/v1/completions", greedy(3));
  const std::string text = client.get("/metrics").body;
  const auto value = [&](const std::string& name) {
    const std::size_t at = text.find("\n" + name + " ");
    return std::stod(text.substr(at + name.size() + 2));
  };
  EXPECT_EQ(value("hone_requests_accepted_total"), 3);
  EXPECT_EQ(value("hone_requests_accepted_total"),
            value("hone_requests_finished_total") + value("hone_requests_failed_total") +
                value("hone_requests_cancelled_total") + value("hone_requests_running") +
                value("hone_requests_waiting"));
  EXPECT_EQ(value("hone_time_to_first_token_seconds_count"), 3);
}

TEST_F(ServerTest, turns_text_into_ids_and_back) {
  open();
  if (!server_) return;
  RawClient client(port());
  const Json ids = client.post_json("/tokenize", {{"content", "Tom went home"}}).json();
  EXPECT_EQ(ids["count"], ids["tokens"].size());
  const Json text = client.post_json("/detokenize", {{"tokens", ids["tokens"]}}).json();
  EXPECT_THAT(text["content"].get<std::string>(), HasSubstr("Tom went home"));
}

TEST_F(ServerTest, lets_running_texts_end_before_it_ends) {
  open();
  if (!server_) return;
  RawClient client(port());
  Json body = greedy(200);
  body["ignore_eos"] = true;
  client.send(RawClient::post_text("/v1/completions", body.dump()));
  ASSERT_TRUE(eventually([&] { return engine_->stats().running == 1; }));
  const int number = port();
  std::thread stopper([this] { server_->stop(); });
  EXPECT_TRUE(eventually([&] { return RawClient(number).get("/readyz").status == 503; }));
  EXPECT_EQ(RawClient(number).get("/livez").status, 200) << "it lives until it has ended";
  const HttpAnswer late = RawClient(number).post_json("/v1/completions", greedy(1));
  EXPECT_EQ(late.status, 503);
  EXPECT_TRUE(late.fields.contains("retry-after"));
  EXPECT_EQ(client.read().json()["usage"]["completion_tokens"], 200);
  stopper.join();
}

TEST(ApiKeys, are_read_line_by_line) {
  const test::TemporaryFolder folder;
  const auto file = folder.path() / "keys";
  const auto read = [&](const std::string& text) {
    std::ofstream(file) << text;
    return read_api_keys(file.string());
  };
  const std::vector<ApiKey> keys = read("# comment\nann:secret-of-ann\n\nonly-a-key\r\n");
  ASSERT_EQ(keys.size(), 2U);
  EXPECT_EQ(keys[0].name, "ann");
  EXPECT_EQ(keys[0].key, "secret-of-ann");
  EXPECT_EQ(keys[1].key, "only-a-key");
  EXPECT_THAT(test::error_of([&] { read("short\n"); }), HasSubstr("line 1"));
  EXPECT_THAT(test::error_of([&] { read("same-key-1\nsame-key-1\n"); }), HasSubstr("repeats"));
  EXPECT_THAT(test::error_of([&] { read("ann:key-number-1\nann:key-number-2\n"); }),
              HasSubstr("repeats"));
  EXPECT_THAT(test::error_of([&] { read("# none\n"); }), HasSubstr("no key"));
}

// It greets everybody at /hello, and takes JSON and images at /echo.
class Echo final : public Service {
 public:
  const std::vector<Route>& routes() const override { return routes_; }
  std::string trouble() const override { return problem; }
  int retry_after_s() const override { return 7; }
  void write_metrics(MetricsText& out) const override { out.gauge("echo", "Echo", Index{1}); }
  void tick() override {}
  bool is_idle() const override { return true; }
  void cancel_all() override {}

  std::string problem;

 private:
  std::vector<Route> routes_{
      {"GET", "/hello",
       [](const std::shared_ptr<Exchange>& e, std::uint64_t) { e->respond({.body = "hello"}); },
       /*is_open=*/true},
      {"POST", "/echo",
       [](const std::shared_ptr<Exchange>& e, std::uint64_t) {
         if (e->request().body == "busy") {
           ApiError error(429, "busy");
           error.retry_after_s = 1;
           throw error;
         }
         e->respond({.body = e->request().body});
       },
       /*is_open=*/false, /*takes_images=*/true}};
};

TEST(Server, serves_the_routes_of_a_service) {
  Echo echo;
  ServerOptions options;
  options.listener.port = 0;
  options.keys = {{"ann", "secret-of-ann"}};
  Server server(options, echo);
  server.start();
  RawClient client(server.port());
  EXPECT_EQ(client.get("/hello").body, "hello") << "open";
  EXPECT_EQ(client.post("/echo", "{}").status, 401);
  const std::string key = "X-Api-Key: secret-of-ann\r\n";
  EXPECT_EQ(client.post("/echo", "{}", key).body, "{}");
  EXPECT_EQ(client.post("/echo", "{}", "Authorization: bearer secret-of-ann\r\n").status, 200);
  const HttpAnswer busy = client.post("/echo", "busy", key);
  EXPECT_EQ(busy.status, 429);
  EXPECT_EQ(busy.fields.at("retry-after"), "7") << "as the service says";
  client.send("POST /echo HTTP/1.1\r\nHost: localhost\r\nContent-Type: image/png\r\n" + key +
              "Content-Length: 3\r\n\r\nPNG");
  EXPECT_EQ(client.read().body, "PNG");
  RawClient head(server.port());
  head.send("HEAD /hello HTTP/1.1\r\nHost: localhost\r\n\r\n");
  head.receive();
  EXPECT_THAT(head.pending(), testing::StartsWith("HTTP/1.1 200"));
  const HttpAnswer metrics = client.get("/metrics", key);
  EXPECT_THAT(metrics.body, HasSubstr("\necho 1\n"));
  EXPECT_THAT(metrics.body, HasSubstr("hone_requests_rejected_total{reason=\"queue\"} 1\n"));
  EXPECT_THAT(metrics.body, HasSubstr("route=\"/echo\",method=\"POST\",status=\"429\"} 1\n"));
  echo.problem = "It is tired.";
  EXPECT_THAT(client.get("/readyz").body, HasSubstr("tired"));
  server.stop();
}

// Its head alone gets the answer, which arrives although the body is still being sent.
TEST(Server, does_not_read_a_large_body_of_a_stranger) {
  Echo echo;
  ServerOptions options;
  options.listener.port = 0;
  options.keys = {{"ann", "secret-of-ann"}};
  options.cors_origins = {"http://a.test"};
  Server server(options, echo);
  server.start();
  const std::string head =
      "POST /echo HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n";
  RawClient stranger(server.port());
  stranger.send(head + "Content-Length: 1000000\r\n\r\n");
  EXPECT_EQ(stranger.read().status, 401);
  stranger.send(std::string(1000000, 'x'));
  EXPECT_TRUE(stranger.is_closed_by_server());
  RawClient page(server.port());
  page.send(head + "Origin: http://a.test\r\nContent-Length: 1000000\r\n\r\n");
  const HttpAnswer told = page.read();
  EXPECT_EQ(told.status, 401);
  EXPECT_EQ(told.fields.at("access-control-allow-origin"), "http://a.test");
  RawClient chunked(server.port());
  chunked.send(head + "Transfer-Encoding: chunked\r\n\r\n");
  EXPECT_EQ(chunked.read().status, 401);
  RawClient known(server.port());
  known.send(head + "X-Api-Key: secret-of-ann\r\nContent-Length: 100000\r\n\r\n" +
             std::string(100000, 'x'));
  EXPECT_EQ(known.read().body.size(), 100000U);
  RawClient large(server.port());
  large.send(head + "X-Api-Key: secret-of-ann\r\nContent-Length: 9000000\r\n\r\n" +
             std::string(9000000, 'x'));
  EXPECT_EQ(large.read().status, 413) << "also after the client has sent all of it";
  server.stop();
}

// Other encodings would hide where a body ends.
TEST(Server, knows_no_transfer_encoding_but_chunked) {
  Echo echo;
  ServerOptions options;
  options.listener.port = 0;
  Server server(options, echo);
  server.start();
  for (const char* coding : {"xchunked", "gzip, chunked", "identity", "chunked, chunked"}) {
    RawClient client(server.port());
    client.send(std::string("POST /echo HTTP/1.1\r\nHost: localhost\r\nContent-Type: "
                            "application/json\r\nTransfer-Encoding: ") +
                coding + "\r\n\r\nGET /hello HTTP/1.1\r\nHost: localhost\r\n\r\n");
    EXPECT_GE(client.read().status, 400) << coding;
    EXPECT_TRUE(client.is_closed_by_server()) << coding;
  }
  server.stop();
}

TEST(Server, needs_keys_where_other_machines_reach_it) {
  Echo echo;
  ServerOptions options;
  options.cors_origins = {"example"};
  EXPECT_THAT(test::error_of([&] { Server(options, echo); }), HasSubstr("--cors-origin"));
  options.cors_origins = {};
  options.listener.host = "0.0.0.0";
  EXPECT_THAT(test::error_of([&] { Server(options, echo); }), HasSubstr("--api-key-file"));
}

}  // namespace
}  // namespace hone::server
