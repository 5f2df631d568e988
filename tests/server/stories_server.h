// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <gtest/gtest.h>

#include <chrono>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "hone/server/api/text_service.h"
#include "hone/server/server.h"
#include "tests/server/http_client.h"
#include "tests/support/test_data.h"

namespace hone::test {

inline constexpr std::string_view kStoriesTemplate =
    "{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}assistant:";

// The tiny real model of HONE_TEST_DATA behind HTTP. Without the data, open() skips the test, and
// there is no server.
class StoriesServer : public testing::Test {
 protected:
  void open(server::ServerOptions options = {}, infer::EngineOptions engine = {},
            std::string_view chat_template = kStoriesTemplate) {
    HONE_REQUIRE_TEST_DATA(model, "lm/stories260K.bin");
    engine.executor = &serial_executor();
    engine.tokenizer = model.parent_path() / "tok512.bin";
    engine.on_step_end = [this] {
      if (service_) service_->on_step_end();
    };
    engine_ = infer::Engine::open_or_throw(model, engine);
    options.listener.port = 0;
    service_.emplace(
        server::ServedModel{.engine = engine_.get(),
                            .chat_template = std::make_shared<const text::ChatTemplate>(
                                chat_template, std::map<std::string, std::string>()),
                            .id = "stories"},
        steady_clock());
    server_.emplace(options, *service_);
    loop_ = std::jthread([this](std::stop_token stop) { engine_->run(std::move(stop)); });
    server_->start();
  }
  void TearDown() override {
    if (server_) server_->stop();
    loop_ = {};
    if (service_) service_->finish();
  }
  int port() const { return server_->port(); }
  static bool eventually(const std::function<bool()>& holds) {
    for (int i = 0; i < 2000; ++i) {
      if (holds()) return true;
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
    return false;
  }
  static Json greedy(Index tokens) {
    return {{"prompt", "Once upon a time"}, {"temperature", 0}, {"max_tokens", tokens}};
  }

  std::unique_ptr<infer::Engine> engine_;
  std::optional<server::TextService> service_;
  std::optional<server::Server> server_;
  std::jthread loop_;
};

// The pieces of a stream, without the last one, which must be [DONE].
inline std::vector<Json> pieces_of(const std::string& body) {
  std::vector<Json> out;
  std::string last;
  for (std::size_t at = 0; at < body.size();) {
    const std::size_t end = body.find("\n\n", at);
    const std::string line = body.substr(at, end - at);
    at = end + 2;
    EXPECT_TRUE(line.starts_with("data: ")) << line;
    last = line.substr(6);
    if (last != "[DONE]") out.push_back(Json::parse(last));
  }
  EXPECT_EQ(last, "[DONE]");
  return out;
}

// The data of the server-sent events of this name.
inline std::vector<Json> events_of(const std::string& body, const std::string& name) {
  std::vector<Json> out;
  const std::string head = "event: " + name + "\ndata: ";
  for (std::size_t at = 0; (at = body.find(head, at)) != std::string::npos;) {
    at += head.size();
    out.push_back(Json::parse(body.substr(at, body.find("\n\n", at) - at)));
  }
  return out;
}

}  // namespace hone::test
