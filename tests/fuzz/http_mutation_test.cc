// SPDX-License-Identifier: Apache-2.0
// Mutated HTTP requests over sockets: each connection gets well-formed answers with a documented
// status or is closed, soon; the server goes on, and its books balance.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <charconv>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <iterator>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "hone/core/check.h"
#include "hone/core/file/json_io.h"
#include "hone/server/server.h"
#include "tests/fuzz/mutation_support.h"
#include "tests/server/http_client.h"
#include "tests/server/stories_server.h"
#include "tests/server/tool_requests.h"

namespace hone::server {
namespace {

using hone::test::Api;
using hone::test::draw_below;
using hone::test::kSlowdown;
using hone::test::RawClient;

using SteadyClock = std::chrono::steady_clock;

constexpr int kHttpRuns = kSlowdown > 1 ? 1'000 : 10'000;
constexpr int kHttpClients = 48;
constexpr double kPauseSeconds =
    0.2 * kSlowdown;  // after which the server closes what does not go on
constexpr double kStatusSeconds = 5 * kSlowdown, kAnswerSeconds = 40 * kSlowdown;

// docs/serve.md has them, but for 204 (OPTIONS) and 417 (Expect).
constexpr std::array kToldStatuses = {200, 204, 400, 401, 403, 404, 405, 413,
                                      415, 417, 429, 431, 501, 503, 504};

// It knows tools and reasoning.
constexpr std::string_view kChatTemplate =
    "{% if tools %}{% for t in tools %}{{ t | tojson }}\n{% endfor %}{% endif %}"
    "{% for m in messages %}{{ m.role }}: {{ m.content }}"
    "{% if m.tool_calls %}{% for c in m.tool_calls %}<tool_call>{{ c | tojson }}{% endfor %}"
    "{% endif %}\n{% endfor %}assistant:"
    "{% if enable_thinking %}<think>{# ends with </think> #}{% endif %}";

// A request with a body of JSON, or a whole message of any kind.
struct HttpSeed {
  std::string name;
  std::string path{}, body{}, fields{};
  std::string message{};
  std::vector<int> statuses = {200};  // of the answers; empty: any

  std::string text() const {
    return body.empty() ? message : RawClient::post_text(path, body, fields);
  }
};

HttpSeed json_seed(std::string name, std::string_view path, const Json& body,
                   std::string fields = {}) {
  return {.name = std::move(name),
          .path = std::string(path),
          .body = body.dump(),
          .fields = std::move(fields)};
}

HttpSeed raw_seed(std::string name, std::string message, std::vector<int> statuses = {200}) {
  return {.name = std::move(name), .message = std::move(message), .statuses = std::move(statuses)};
}

Json tool_body(Api api, const std::string& choice, bool streams) {
  const Json schema = Json::parse(R"({"type":"object","properties":{"city":{"type":"string",
      "maxLength":3},"days":{"type":"integer","minimum":1,"maximum":9},"on":{"type":"string",
      "format":"date"},"code":{"type":"string","pattern":"^[a-c]{2}-[0-9]$"}},
      "required":["city"]})");
  Json tools = Json::array();
  tools.push_back(hone::test::tool_of(api, "get", schema, true));
  Json body = hone::test::request_for(api, tools, choice, 4);
  if (streams) body["stream"] = true;
  return body;
}

std::vector<HttpSeed> json_seeds() {
  const Json conversation = Json::parse(R"({"messages":[{"role":"system","content":"Be brief."},
      {"role":"user","content":[{"type":"text","text":"How is it?"}]},{"role":"assistant",
      "content":null,"tool_calls":[{"id":"call12345","type":"function","function":{"name":"get",
      "arguments":"{\"city\":\"York\"}"}}]},{"role":"tool","tool_call_id":"call12345",
      "content":"sunny"}],"max_completion_tokens":3,"response_format":{"type":"json_schema",
      "json_schema":{"name":"x","schema":{"type":"object","properties":{"a":{"oneOf":[{"type":
      "null"},{"type":"integer","multipleOf":5,"minimum":0,"maximum":50}]}}}}},"logprobs":true,
      "top_logprobs":2,"chat_template_kwargs":{"enable_thinking":true},"stream":true,
      "stream_options":{"include_usage":true}})");
  const Json completion = Json::parse(R"({"prompt":["Once","Tom"],"max_tokens":2,"n":2,
      "temperature":0.5,"top_p":0.9,"top_k":40,"min_p":0.1,"seed":7,"stop":["cat","dog"],
      "presence_penalty":0.5,"frequency_penalty":-0.5,"repetition_penalty":1.1,"logit_bias":
      {"300":-5},"logprobs":2,"stop_token_ids":[3],"priority":"low","timeout":20,"user":"me",
      "min_tokens":1,"return_token_ids":true,"model":"stories","frobnicate":1})");
  const Json scored = Json::parse(R"({"prompt":[403,407,261],"max_tokens":1,"echo":true,
      "logprobs":1,"temperature":0,"best_of":2,"ignore_eos":true})");
  const Json anthropic = Json::parse(R"({"system":[{"type":"text","text":"Be brief."}],"messages":
      [{"role":"user","content":"Hello"},{"role":"assistant","content":[{"type":"tool_use","id":
      "a","name":"get","input":{"city":"Bath"}}]},{"role":"user","content":[{"type":"tool_result",
      "tool_use_id":"a","content":"sunny"}]}],"max_tokens":3,"stop_sequences":["."],
      "stream":true})");
  const Json items = Json::parse(R"({"instructions":"Be brief.","input":[{"role":"user","content":
      [{"type":"input_text","text":"Hello"}]},{"type":"function_call","call_id":"a","name":"get",
      "arguments":"{}"},{"type":"function_call_output","call_id":"a","output":"sunny"}],"text":
      {"format":{"type":"json_object"}},"max_output_tokens":3})");
  const std::string_view chat = route_of(Api::Chat), messages = route_of(Api::Messages),
                         responses = route_of(Api::Responses);
  return {json_seed("chat that must call", chat, tool_body(Api::Chat, "any", false)),
          json_seed("stream of a chat with tools", chat, tool_body(Api::Chat, "get", true)),
          json_seed("conversation", chat, conversation),
          json_seed("messages with tools", messages, tool_body(Api::Messages, "any", false)),
          json_seed("stream of messages", messages, anthropic),
          json_seed("stream of responses", responses, tool_body(Api::Responses, "auto", true)),
          json_seed("response of items", responses, items),
          json_seed("completion", "/v1/completions", completion),
          json_seed("scored completion", "/v1/completions", scored),
          json_seed("embedding", "/v1/embeddings", {{"input", {"Tom went home", "Once"}}}),
          json_seed("tokenize", "/tokenize", {{"content", "Tom <s> went"}, {"with_pieces", true}}),
          json_seed("detokenize", "/detokenize", {{"tokens", {403, 407, 261, 3}}}),
          json_seed("template", "/apply-template", {{"messages", conversation["messages"]}}),
          json_seed("count", "/v1/messages/count_tokens", anthropic),
          json_seed("expectation", "/tokenize", {{"content", "Tom"}}, "Expect: 100-continue\r\n"),
          json_seed("key", "/tokenize", {{"prompt", "Tom"}},
                    "Authorization: Bearer secret-key\r\nX-Request-Id: abc-1\r\n"
                    "Origin: http://localhost:3000\r\nConnection: close\r\n")};
}

// The body in chunks, the second one with an extension, and a trailer.
std::string chunked_message(std::string_view path, const std::string& body) {
  const std::size_t half = body.size() / 2;
  std::array<char, 24> sizes[2] = {};
  std::snprintf(sizes[0].data(), sizes[0].size(), "%zx", half);
  std::snprintf(sizes[1].data(), sizes[1].size(), "%zX", body.size() - half);
  return concat("POST ", path,
                " HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
                "Transfer-Encoding: chunked\r\n\r\n",
                std::string_view(sizes[0].data()), "\r\n", body.substr(0, half), "\r\n",
                std::string_view(sizes[1].data()), ";a=\"b\"\r\n", body.substr(half),
                "\r\n0\r\nX-Trailer: c\r\n\r\n");
}

std::string get_message(std::string_view target, std::string_view fields = "",
                        std::string_view version = "HTTP/1.1") {
  return concat("GET ", target, " ", version, "\r\nHost: localhost\r\n", fields, "\r\n");
}

std::vector<HttpSeed> raw_seeds() {
  const std::string body = R"({"prompt":"Once","max_tokens":2,"stream":true,"temperature":0})";
  const std::string completion = RawClient::post_text("/v1/completions", body);
  std::string many, long_one = "X-Long: " + std::string(17'000, 'x') + "\r\n";
  for (int i = 0; i < 80; ++i) many += concat("X-Field-", i, ": ", std::string(90, 'v'), "\r\n");
  return {
      raw_seed("models", get_message("/v1/models?a=b%20c")),
      raw_seed("page", get_message("/")),
      raw_seed("metrics", get_message("/metrics")),
      raw_seed("chunks", chunked_message("/v1/completions", body)),
      raw_seed("pipelined", get_message("/v1/models") + completion + get_message("/livez"),
               {200, 200, 200}),
      raw_seed("pipelined posts", completion + completion, {200, 200}),
      raw_seed("many fields", get_message("/props", many)),
      raw_seed("long field", get_message("/props", long_one), {431}),
      raw_seed("unknown expectation", get_message("/props", "Expect: tea\r\n"), {417}),
      raw_seed("negative length", get_message("/props", "Content-Length: -1\r\n"), {400}),
      raw_seed("two lengths", get_message("/props", "Content-Length: 1\r\nContent-Length: 2\r\n"),
               {400}),
      raw_seed("huge length", get_message("/props", "Content-Length: 99999999999\r\n"), {413}),
      raw_seed("length and chunks",
               get_message("/props", "Content-Length: 5\r\nTransfer-Encoding: chunked\r\n") +
                   "0\r\n\r\n",
               {}),
      raw_seed("legacy", get_message("/livez", "", "HTTP/1.0")),
      raw_seed("legacy stream",
               concat("POST /v1/completions HTTP/1.0\r\nHost: localhost\r\nContent-Type: "
                      "application/json\r\nContent-Length: ",
                      body.size(), "\r\n\r\n", body)),
      raw_seed("newer", get_message("/livez", "", "HTTP/2.0"), {400}),
      raw_seed("absolute target", get_message("http://localhost/livez"), {}),
      raw_seed("target of a proxy", get_message("http://evil.example/v1/models"), {}),
      raw_seed("other host", "GET /props HTTP/1.1\r\nHost: evil.example\r\n\r\n", {403}),
      raw_seed("two hosts", get_message("/props", "Host: evil.example\r\n"), {}),
      raw_seed("no host", "GET /props HTTP/1.1\r\n\r\n", {}),
      raw_seed("other origin", get_message("/props", "Origin: http://evil.example\r\n"), {403}),
      raw_seed("options",
               "OPTIONS /v1/models HTTP/1.1\r\nHost: localhost\r\nOrigin: http://a.example\r\n\r\n",
               {204}),
      raw_seed("head", "HEAD /livez HTTP/1.1\r\nHost: localhost\r\n\r\n"),
      raw_seed("other method", "PUT /v1/models HTTP/1.1\r\nHost: localhost\r\n\r\n", {405}),
      raw_seed("no path", get_message("/nothing"), {404}),
      raw_seed("no type",
               "POST /tokenize HTTP/1.1\r\nHost: localhost\r\nContent-Length: 2\r\n\r\n{}", {415}),
      raw_seed("no json", RawClient::post_text("/tokenize", "{\"content\": "), {400})};
}

std::vector<HttpSeed> http_seeds() {
  std::vector<HttpSeed> seeds = json_seeds(), more = raw_seeds();
  seeds.insert(seeds.end(), std::make_move_iterator(more.begin()),
               std::make_move_iterator(more.end()));
  return seeds;
}

constexpr std::array<std::string_view, 34> kHostileFields = {
    "Content-Length: 5",
    "Content-Length: 0",
    "Content-Length: +2",
    "Content-Length: 0x10",
    "Content-Length: 18446744073709551616",
    "Content-Length:",
    "Transfer-Encoding: chunked",
    "Transfer-Encoding: gzip, chunked",
    "Transfer-Encoding: identity",
    "Transfer-Encoding: chunked, chunked",
    "Host: evil.example",
    "Host:",
    "Host: localhost:99999999",
    "Host: [::1",
    "Expect: 100-continue",
    "Expect: tea",
    "Connection: close",
    "Connection: keep-alive, upgrade",
    "Upgrade: h2c",
    "Origin: null",
    "Origin: http://localhost.evil.example",
    "Authorization: Bearer \xff\xfe",
    "X-Api-Key: \x01",
    "X-Request-Id: a\tb",
    "X-Request-Id:  ",
    "Content-Type: text/plain",
    "Content-Type: application/json; x",
    "Content-Encoding: gzip",
    "NoColon",
    ": no name",
    " folded",
    "Bad Name: a",
    "A: \r",
    ""};

// Drops, repeats, exchanges and adds lines of the head.
void mutate_fields(std::string& head, PhiloxStream& random) {
  std::vector<std::string> lines;
  for (std::size_t at = 0; at < head.size();) {
    const std::size_t end = std::min(head.find("\r\n", at), head.size());
    lines.push_back(head.substr(at, end - at));
    at = end + 2;
  }
  for (std::size_t n = 1 + draw_below(random, 2); n > 0; --n) {
    const std::size_t place = draw_below(random, lines.size() + 1);
    const auto at = lines.begin() + static_cast<std::ptrdiff_t>(place);
    const std::string hostile(kHostileFields[draw_below(random, kHostileFields.size())]);
    switch (place == lines.size() ? 0 : draw_below(random, 4)) {
      case 0:
        lines.insert(at, hostile);
        break;
      case 1:
        lines.erase(at);
        break;
      case 2:
        *at = hostile;
        break;
      default:
        lines.push_back(*at);
    }
  }
  head.clear();
  for (const std::string& line : lines) head += line + "\r\n";
  if (!head.empty()) head.resize(head.size() - 2);
}

// The whole message, its head, or its body with a true length.
std::string mutated_message(const HttpSeed& seed, PhiloxStream& random) {
  if (!seed.body.empty() && draw_below(random, 3) > 0) {
    HttpSeed other = seed;
    const std::size_t kind = draw_below(random, 6);
    if (kind == 0) {
      hone::test::mutate_binary(other.body, random);
    } else if (kind < 3) {
      hone::test::mutate_json(other.body, random);
    } else {
      hone::test::mutate_json_tree(other.body, random);
    }
    return RawClient::post_text(other.path, other.body, other.fields);
  }
  std::string text = seed.text();
  const std::size_t end = std::min(text.find("\r\n\r\n"), text.size());
  std::string head = text.substr(0, end);
  const std::string rest = text.substr(end);
  switch (draw_below(random, 3)) {
    case 0:
      hone::test::mutate_binary(text, random);
      return text;
    case 1:
      hone::test::mutate_binary(head, random);
      break;
    default:
      mutate_fields(head, random);
  }
  return head + rest;
}

struct Answers {
  std::vector<int> statuses{};
  std::string problem{};
  bool is_whole = true;
};

// Reads the bytes that a server has sent as answers.
class AnswerReader {
 public:
  explicit AnswerReader(std::string_view bytes) : rest_(bytes) {}

  Answers read() {
    while (!rest_.empty() && answers_.problem.empty() && answers_.is_whole) {
      answers_.is_whole = read_one();
    }
    return std::move(answers_);
  }

 private:
  static constexpr std::string_view kVersion = "HTTP/1.1 ";

  struct Head {
    int status = 0;
    std::optional<std::size_t> length{};
    bool is_chunked = false, is_json = false;
  };

  void fail(std::string_view problem, std::string_view shown) {
    answers_.problem = concat(problem, ": ", shown.substr(0, 300));
  }

  // Returns false if more bytes must come.
  bool read_one() {
    const std::size_t end = rest_.find("\r\n\r\n");
    if (end == rest_.npos) {
      if (!kVersion.starts_with(rest_.substr(0, kVersion.size()))) fail("no status line", rest_);
      return false;
    }
    Head head;
    if (!read_head(rest_.substr(0, end + 2), head)) return true;
    rest_.remove_prefix(end + 4);
    if (head.status == 100) return true;
    answers_.statuses.push_back(head.status);
    if (head.is_chunked) return read_chunks();
    if (!head.length) {  // all bytes until the connection closes
      rest_ = {};
      return false;
    }
    if (*head.length > 0 && rest_.starts_with(kVersion)) return true;  // after an answer to HEAD
    if (rest_.size() < *head.length) return false;
    const std::string_view body = rest_.substr(0, *head.length);
    rest_.remove_prefix(*head.length);
    if (!head.is_json || body.empty()) return true;
    const Json json = Json::parse(body, nullptr, false);
    const bool is_good = json.is_object() && (head.status < 400 || json.contains("error"));
    if (!is_good) fail("no JSON, or no error", body);
    return true;
  }

  bool read_head(std::string_view lines, Head& head) {
    const auto is_control = [](char c) { return static_cast<unsigned char>(c) < ' ' || c == 127; };
    const auto is_digit = [](char c) { return c >= '0' && c <= '9'; };
    for (std::size_t at = 0; at < lines.size();) {
      const std::size_t end = lines.find("\r\n", at);
      const std::string_view line = lines.substr(at, end - at);
      const std::size_t colon = line.find(": ");
      if (std::ranges::any_of(line, is_control)) return fail("control bytes", line), false;
      if (at == 0) {
        const std::string_view digits = line.substr(std::min(line.size(), kVersion.size()), 3);
        const bool is_status = line.starts_with(kVersion) && digits.size() == 3 &&
                               std::ranges::all_of(digits, is_digit) && line.size() > 13 &&
                               line[12] == ' ';
        if (!is_status) return fail("no status line", line), false;
        head.status = std::stoi(std::string(digits));
      } else if (colon == line.npos || colon == 0) {
        return fail("no field", line), false;
      } else {
        read_field(line.substr(0, colon), line.substr(colon + 2), head);
      }
      at = end + 2;
    }
    return true;
  }

  static void read_field(std::string_view name, std::string_view value, Head& head) {
    if (name == "Content-Length") {
      std::from_chars(value.data(), value.data() + value.size(), head.length.emplace());
    }
    if (name == "Transfer-Encoding") head.is_chunked = value == "chunked";
    if (name == "Content-Type") head.is_json = value.starts_with("application/json");
  }

  bool read_chunks() {
    for (;;) {
      const std::size_t end = rest_.find("\r\n");
      if (end == rest_.npos) return false;
      std::size_t size = 0;
      const auto [last, error] = std::from_chars(rest_.data(), rest_.data() + end, size, 16);
      if (error != std::errc() || last != rest_.data() + end) {
        fail("no size of a chunk", rest_);
        return true;
      }
      if (rest_.size() < end + size + 4) return false;
      if (rest_.substr(end + 2 + size, 2) != "\r\n") {
        fail("no end of a chunk", rest_);
        return true;
      }
      rest_.remove_prefix(end + size + 4);
      if (size == 0) return true;
    }
  }

  std::string_view rest_;
  Answers answers_;
};

double seconds_since(SteadyClock::time_point begin) {
  return std::chrono::duration<double>(SteadyClock::now() - begin).count();
}

// Ports of closed connections may have to become free again.
std::unique_ptr<RawClient> connect_to(int port) {
  for (int i = 0; i < 500; ++i) {
    auto client = std::make_unique<RawClient>(port);
    if (client->is_open()) return client;
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
  return nullptr;
}

// Sends a message and reads up to `wanted` answers, or until the server closes.
Answers talk_to(int port, const std::string& message, std::size_t wanted) {
  const auto client = connect_to(port);
  if (client == nullptr) return {.problem = "no connection"};
  client->send(message);
  const auto begin = SteadyClock::now();
  for (;;) {
    Answers answers = AnswerReader(client->pending()).read();
    const bool is_done = answers.is_whole && answers.statuses.size() >= wanted;
    if (is_done || !answers.problem.empty()) return answers;
    const double limit = answers.statuses.empty() ? kStatusSeconds : kAnswerSeconds;
    const double left = limit - seconds_since(begin);
    if (left > 0 && client->receive(left + 0.01)) continue;
    if (left <= 0 || seconds_since(begin) > limit) {
      answers.problem = concat("silent for ", limit, " s");
    }
    return answers;
  }
}

struct Books {
  double accepted = 0, ended = 0, open = 0;
  bool balance() const { return accepted == ended + open; }
  std::string shown() const {
    return concat(accepted, " accepted, ", ended, " ended, ", open, " open");
  }
};

std::optional<Books> read_books(int port) {
  const auto client = connect_to(port);
  if (client == nullptr) return std::nullopt;
  const hone::test::HttpAnswer answer = client->get("/metrics");
  if (answer.status != 200 || !answer.is_complete) return std::nullopt;
  const auto value = [&](std::string_view name) {
    const std::string begin = concat("\nhone_requests_", name, " ");
    const std::size_t at = answer.body.find(begin);
    EXPECT_NE(at, std::string::npos) << name;
    return at == std::string::npos ? -1 : std::stod(answer.body.substr(at + begin.size(), 32));
  };
  return Books{.accepted = value("accepted_total"),
               .ended = value("finished_total") + value("failed_total") + value("cancelled_total"),
               .open = value("running") + value("waiting")};
}

class HttpMutation : public hone::test::StoriesServer {
 protected:
  // What does not go on for so long is closed.
  void open_impatient(double seconds) {
    ServerOptions options;
    options.listener.idle_s = options.listener.head_s = options.listener.body_s = seconds;
    open(options, {}, kChatTemplate);
  }

  // One mutation; every 64th looks into the books instead.
  void try_run(int run) {
    if (run % 64 == 63) {
      const std::optional<Books> books = read_books(port());
      // Under load, the connection of a scrape may be closed before the server reads it.
      if (books) {
        EXPECT_TRUE(books->balance()) << books->shown();
      }
      return;
    }
    PhiloxStream random(20'261'122 + hone::test::fuzz_seed(), static_cast<std::uint64_t>(run));
    const HttpSeed& seed = seeds_[draw_below(random, seeds_.size())];
    const std::string message = mutated_message(seed, random);
    if (draw_below(random, 16) == 0) {  // a client that does not wait
      if (const auto client = connect_to(port())) client->send(message);
      return;
    }
    const Answers answers =
        talk_to(port(), message, std::max<std::size_t>(1, seed.statuses.size()));
    EXPECT_EQ(answers.problem, "") << shown(run, seed, message);
    for (const int status : answers.statuses) {
      EXPECT_TRUE(std::ranges::find(kToldStatuses, status) != kToldStatuses.end())
          << status << " " << shown(run, seed, message);
      ++counts_[static_cast<std::size_t>(status)];
    }
  }

  void try_all() {
    const auto end = hone::test::fuzz_end();
    std::atomic<int> next{0};
    std::vector<std::jthread> clients;
    for (int i = 0; i < kHttpClients; ++i) {
      clients.emplace_back([&] {
        for (int run = next++; run < kHttpRuns || SteadyClock::now() < end; run = next++) {
          if (testing::Test::HasFailure()) return;
          try_run(run);
        }
      });
    }
  }

  static std::string shown(int run, const HttpSeed& seed, const std::string& message) {
    return concat("run ", run, ", from \"", seed.name, "\": ", testing::PrintToString(message));
  }

  const std::vector<HttpSeed> seeds_ = http_seeds();
  std::array<std::atomic<int>, 1000> counts_{};
};

TEST_F(HttpMutation, seeds_have_their_answers) {
  open_impatient(2 * kSlowdown);
  if (!server_) return;
  for (const HttpSeed& seed : seeds_) {
    const Answers answers =
        talk_to(port(), seed.text(), std::max<std::size_t>(1, seed.statuses.size()));
    EXPECT_EQ(answers.problem, "") << seed.name;
    if (!seed.statuses.empty()) {
      EXPECT_EQ(answers.statuses, seed.statuses) << seed.name;
    }
  }
}

TEST_F(HttpMutation, every_request_is_answered_or_closed) {
  open_impatient(kPauseSeconds);
  if (!server_) return;
  try_all();
  std::optional<Books> books;
  ASSERT_TRUE(eventually([&] {
    books = read_books(port());
    return books && books->open == 0;
  }));
  EXPECT_TRUE(books->balance()) << books->shown();
  EXPECT_GT(books->accepted, kHttpRuns / 50);
  for (const char* path : {"/livez", "/readyz"}) {
    EXPECT_TRUE(eventually([&] { return RawClient(port()).get(path).status == 200; })) << path;
  }
  EXPECT_GT(counts_[200], kHttpRuns / 50);  // some mutations hurt, and some do not
  EXPECT_GT(counts_[400], kHttpRuns / 50);
  for (std::size_t status = 0; status < counts_.size(); ++status) {
    if (counts_[status] > 0) std::printf("%zu: %d\n", status, counts_[status].load());
  }
}

// A browser can be led to any name that its owner lets stand for 127.0.0.1.
TEST_F(HttpMutation, names_that_only_resemble_a_loopback_may_not_ask) {
  open();
  if (!server_) return;
  for (const char* host :
       {"evil.example", "evil.example:80", "127.evil.example", "127.0.0.1.evil.example",
        "127.0.0.1evil.example", "127.1.2.3.evil.example:8080", "localhost.evil.example",
        "evil.localhost.example", "evil.example@localhost", "1270.0.0.1", "localhost evil", ""}) {
    RawClient client(port());
    client.send(concat("GET /v1/models HTTP/1.1\r\nHost: ", host, "\r\n\r\n"));
    const int status = client.read().status;
    EXPECT_TRUE(status == 403 || status == 400) << host << ": " << status;
  }
  for (const char* origin :
       {"null", "http://evil.example", "http://127.evil.example", "http://localhost.evil.example",
        "https://127.0.0.1.evil.example:3000", "evil.example://evil.example"}) {
    RawClient client(port());
    EXPECT_EQ(client.get("/v1/models", concat("Origin: ", origin, "\r\n")).status, 403) << origin;
  }
  for (const char* host :
       {"localhost", "localhost:8080", "127.0.0.1", "127.1.2.3:80", "[::1]:80"}) {
    RawClient client(port());
    client.send(concat("GET /v1/models HTTP/1.1\r\nHost: ", host, "\r\n\r\n"));
    EXPECT_EQ(client.read().status, 200) << host;
  }
}

}  // namespace
}  // namespace hone::server
