// SPDX-License-Identifier: Apache-2.0
// Framing, limits, and clients that go away, with a handler that echoes.
#include "hone/server/http/listener.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "hone/core/error.h"
#include "tests/server/http_client.h"
#include "tests/support/error_of.h"

namespace hone::server {
namespace {

using test::HttpAnswer;
using test::RawClient;
using testing::HasSubstr;

class ListenerTest : public testing::Test {
 protected:
  void start(ListenerOptions options = {}) {
    options.port = 0;
    listener_ = std::make_unique<Listener>(
        options, [this](const std::shared_ptr<Exchange>& exchange) { handle(exchange); },
        [this](const HttpRequest&, int) { ++observed_; });
    listener_->start();
  }
  int port() const { return listener_->port(); }

  void handle(const std::shared_ptr<Exchange>& exchange) {
    ++handled_;
    const HttpRequest& request = exchange->request();
    if (request.path == "/wait") {
      const std::scoped_lock lock(mutex_);
      waiting_.push_back(exchange);
      exchange->on_close([this] { ++closed_; });
      return;
    }
    if (request.path == "/stream") {
      exchange->begin_stream("text/plain");
      exchange->write("one ");
      exchange->write("two");
      return exchange->end_stream(request.query != "broken");
    }
    exchange->respond(
        {.type = "text/plain",
         .body = request.method + " " + request.path + "?" + request.query + " " + request.body});
  }
  bool eventually(const std::function<bool()>& holds) const {
    for (int i = 0; i < 2000; ++i) {
      if (holds()) return true;
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
    return false;
  }

  std::atomic<int> handled_{0}, observed_{0}, closed_{0};
  std::mutex mutex_;
  std::vector<std::shared_ptr<Exchange>> waiting_;
  std::unique_ptr<Listener> listener_;
};

TEST_F(ListenerTest, answers_many_requests_of_a_connection) {
  start();
  RawClient client(port());
  for (int i = 0; i < 3; ++i) {
    const HttpAnswer answer = client.post("/a?b=c", "body");
    EXPECT_EQ(answer.status, 200);
    EXPECT_EQ(answer.body, "POST /a?b=c body");
    EXPECT_EQ(answer.fields.at("connection"), "keep-alive");
  }
  EXPECT_EQ(observed_, 3);
}

TEST_F(ListenerTest, answers_requests_that_were_sent_together_in_order) {
  start();
  RawClient client(port());
  client.send(RawClient::post_text("/1", "x") + RawClient::post_text("/2", "y") +
              "GET /3 HTTP/1.1\r\nHost: a\r\n\r\n");
  EXPECT_EQ(client.read().body, "POST /1? x");
  EXPECT_EQ(client.read().body, "POST /2? y");
  EXPECT_EQ(client.read().body, "GET /3? ");
}

TEST_F(ListenerTest, takes_requests_byte_by_byte) {
  start();
  RawClient client(port());
  for (const char c : RawClient::post_text("/slow", "12")) client.send(std::string_view(&c, 1));
  EXPECT_EQ(client.read().body, "POST /slow? 12");
}

TEST_F(ListenerTest, takes_chunked_bodies_and_expectations) {
  start();
  RawClient client(port());
  client.send(
      "POST /c HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n"
      "3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n");
  EXPECT_EQ(client.read().body, "POST /c? abcde");
  client.send("POST /e HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\nExpect: 100-continue\r\n\r\n");
  ASSERT_TRUE(client.receive());
  EXPECT_THAT(client.pending(), HasSubstr("100 Continue"));
  client.send("ok");
  EXPECT_EQ(client.read().body, "POST /e? ok");
  client.send("POST /e HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\nExpect: tea\r\n\r\n");
  EXPECT_EQ(client.read().status, 417);
}

TEST_F(ListenerTest, streams_in_chunks_and_shows_what_is_missing) {
  start();
  RawClient client(port());
  const HttpAnswer whole = client.get("/stream");
  EXPECT_EQ(whole.body, "one two");
  EXPECT_TRUE(whole.is_complete);
  const HttpAnswer broken = client.get("/stream?broken");
  EXPECT_EQ(broken.body, "one two");
  EXPECT_FALSE(broken.is_complete);
  EXPECT_TRUE(client.is_closed_by_server());
}

TEST_F(ListenerTest, closes_after_requests_of_http_1_0) {
  start();
  RawClient client(port());
  client.send("GET /stream HTTP/1.0\r\n\r\n");
  while (client.receive()) {
  }
  EXPECT_TRUE(client.pending().ends_with("\r\n\r\none two")) << client.pending();
}

TEST_F(ListenerTest, leaves_the_body_out_of_answers_to_head) {
  start();
  RawClient client(port());
  client.send("HEAD /h HTTP/1.1\r\nHost: a\r\n\r\nGET /g HTTP/1.1\r\nHost: a\r\n\r\n");
  while (client.pending().find("GET /g?") == std::string::npos && client.receive()) {
  }
  EXPECT_EQ(client.pending().find("HEAD /h"), std::string::npos);
  EXPECT_THAT(client.pending(), HasSubstr("Content-Length: 9"));
}

TEST_F(ListenerTest, refuses_what_is_too_large_or_no_http) {
  start({.max_body = 100, .max_head = 2000});
  const auto status_of = [this](const std::string& bytes) {
    RawClient client(port());
    client.send(bytes);
    const HttpAnswer answer = client.read();
    EXPECT_TRUE(client.is_closed_by_server());
    return answer.status;
  };
  EXPECT_EQ(status_of(RawClient::post_text("/", std::string(101, 'x'))), 413);
  EXPECT_EQ(status_of("GET /" + std::string(3000, 'a') + " HTTP/1.1\r\n\r\n"), 431);
  std::string many = "GET / HTTP/1.1\r\n";
  for (int i = 0; i < 120; ++i) many += "A: b\r\n";
  EXPECT_EQ(status_of(many + "\r\n"), 431);
  EXPECT_EQ(status_of("\x16\x03\x01\x02 TLS is not spoken here\r\n\r\n"), 400);
  EXPECT_EQ(status_of("GET / HTTP/1.1\r\nContent-Length: -1\r\n\r\n"), 400);
  EXPECT_EQ(status_of("GET / HTTP/1.1\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n"), 400);
  EXPECT_EQ(status_of("GET / HTTP/2.0\r\n\r\n"), 400);
  EXPECT_EQ(handled_, 0);
}

TEST_F(ListenerTest, keeps_ids_of_requests_that_can_be_header_fields) {
  start();
  RawClient client(port());
  EXPECT_EQ(client.get("/", "X-Request-Id: abc-1\r\n").fields.at("x-request-id"), "abc-1");
  EXPECT_EQ(client.get("/").fields.at("x-request-id").size(), 16U);
  const std::string longest(200, 'x');
  EXPECT_EQ(client.get("/", "X-Request-Id: " + longest + "\r\n").fields.at("x-request-id").size(),
            16U);
}

TEST_F(ListenerTest, tells_when_a_client_goes_before_its_answer) {
  start();
  RawClient gone(port()), stays(port());
  gone.send("GET /wait HTTP/1.1\r\nHost: a\r\n\r\n");
  stays.send("GET /wait HTTP/1.1\r\nHost: a\r\n\r\n");
  ASSERT_TRUE(eventually([&] { return handled_ == 2; }));
  gone.close();
  EXPECT_TRUE(eventually([&] { return closed_ == 1; }));
  {
    const std::scoped_lock lock(mutex_);
    for (const auto& exchange : waiting_) exchange->respond({.body = "late"});
  }
  EXPECT_EQ(stays.read().body, "late");
  EXPECT_EQ(closed_, 1);
}

TEST_F(ListenerTest, closes_silent_connections_and_keeps_others) {
  start({.idle_s = 0.3, .head_s = 0.3, .body_s = 0.3});
  RawClient silent(port()), in_head(port()), in_body(port()), waits(port());
  in_head.send("GET / HT");
  in_body.send("POST / HTTP/1.1\r\nContent-Length: 10\r\n\r\nabc");
  waits.send("GET /wait HTTP/1.1\r\nHost: a\r\n\r\n");
  EXPECT_TRUE(silent.is_closed_by_server());
  EXPECT_TRUE(in_head.is_closed_by_server());
  EXPECT_TRUE(in_body.is_closed_by_server());
  std::this_thread::sleep_for(std::chrono::milliseconds(600));
  const std::scoped_lock lock(mutex_);
  ASSERT_EQ(waiting_.size(), 1U);
  waiting_[0]->respond({.body = "at last"});
  EXPECT_EQ(waits.read().body, "at last");
}

TEST_F(ListenerTest, bounds_the_bytes_that_wait_for_a_slow_reader) {
  start();
  RawClient slow(port());
  slow.send("GET /wait HTTP/1.1\r\nHost: a\r\n\r\n");
  ASSERT_TRUE(eventually([&] { return handled_ == 1; }));
  const std::scoped_lock lock(mutex_);
  waiting_[0]->begin_stream("text/plain");
  const std::string piece(1 << 20, 'x');
  int written = 0;
  while (written < 100 && waiting_[0]->write(piece)) {
    ++written;
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
  EXPECT_LT(written, 100);
}

TEST_F(ListenerTest, refuses_connections_beyond_the_limit_and_recovers) {
  start({.max_connections = 2});
  RawClient first(port()), second(port());
  EXPECT_EQ(first.get("/").status, 200);
  EXPECT_EQ(second.get("/").status, 200);
  RawClient third(port());
  const HttpAnswer refused = third.read();
  EXPECT_EQ(refused.status, 503);
  EXPECT_TRUE(refused.fields.contains("retry-after"));
  first.close();
  EXPECT_TRUE(eventually([&] {
    RawClient again(port());
    return again.get("/").status == 200;
  }));
}

TEST_F(ListenerTest, drains) {
  start();
  RawClient idle(port()), busy(port());
  EXPECT_EQ(idle.get("/").status, 200);
  busy.send("GET /wait HTTP/1.1\r\nHost: a\r\n\r\n");
  ASSERT_TRUE(eventually([&] { return handled_ == 2; }));
  const int old_port = port();
  listener_->drain();
  EXPECT_TRUE(idle.is_closed_by_server());
  RawClient late(old_port);
  const HttpAnswer last = late.get("/");
  EXPECT_EQ(last.status, 200) << "one request more";
  EXPECT_EQ(last.fields.at("connection"), "close");
  EXPECT_TRUE(late.is_closed_by_server());
  {
    const std::scoped_lock lock(mutex_);
    waiting_[0]->respond({.body = "done"});
  }
  EXPECT_EQ(busy.read().body, "done");
  EXPECT_TRUE(busy.is_closed_by_server());
}

TEST_F(ListenerTest, survives_random_bytes) {
  start({.head_s = 1, .body_s = 1});
  std::uint32_t state = 1;
  for (int round = 0; round < 200; ++round) {
    RawClient client(port());
    std::string bytes = round % 2 == 0 ? RawClient::post_text("/x", "abcdef") : std::string();
    for (int i = 0; i < 40; ++i) {
      state = state * 1664525 + 1013904223;
      const char c = static_cast<char>(state >> 24);
      const std::size_t at = bytes.empty() ? 0 : state % bytes.size();
      if (round % 2 == 0) {
        bytes[at] = i < 3 ? c : bytes[at];
      } else {
        bytes.push_back(c);
      }
    }
    client.send(bytes);
  }
  RawClient client(port());
  EXPECT_EQ(client.get("/still").status, 200);
}

TEST(Listener, names_addresses_that_it_cannot_have) {
  const auto handler = [](const std::shared_ptr<Exchange>&) {};
  const auto observer = [](const HttpRequest&, int) {};
  Listener taken({.port = 0}, handler, observer);
  const auto open = [&](const ListenerOptions& options) {
    return test::error_of([&] { Listener(options, handler, observer); });
  };
  EXPECT_THAT(open({.port = taken.port()}), HasSubstr("bind"));
  EXPECT_THAT(open({.host = "no such host", .port = 0}), HasSubstr("address"));
  EXPECT_THAT(open({.port = 70000}), HasSubstr("65535"));
}

}  // namespace
}  // namespace hone::server
