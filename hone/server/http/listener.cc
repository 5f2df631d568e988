// SPDX-License-Identifier: Apache-2.0
#include "hone/server/http/listener.h"

#include <poll.h>

#include <utility>  // before Boost 1.74, which forgets it

#include <array>
#include <atomic>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/write.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/core/tcp_stream.hpp>
#include <boost/beast/http/parser.hpp>
#include <boost/beast/http/read.hpp>
#include <boost/beast/http/string_body.hpp>
#include <chrono>
#include <mutex>
#include <random>
#include <set>
#include <thread>

#include "hone/core/check.h"
#include "hone/core/log.h"

namespace hone::server {
namespace {

namespace asio = boost::asio;
namespace beast = boost::beast;
namespace http = beast::http;
using tcp = asio::ip::tcp;
using ErrorCode = boost::system::error_code;

std::chrono::milliseconds to_ms(double seconds) {
  return std::chrono::milliseconds(static_cast<std::int64_t>(seconds * 1e3));
}

constexpr std::ptrdiff_t kMostFields = 100;
constexpr std::size_t kMostIdBytes = 128;
constexpr std::uint64_t kLargeBody = std::uint64_t{64} << 10;  // or one of unknown size

bool is_printable(std::string_view text) {
  return std::ranges::all_of(text, [](char c) { return c > ' ' && c < 127; });
}

// A new id for a request that has none.
std::string make_id() {
  static std::atomic<std::uint64_t> count{0};
  static const std::uint64_t process = [] {
    std::random_device device;
    return std::uint64_t{device()} << 32 | device();
  }();
  constexpr std::string_view kDigits = "0123456789abcdef";
  std::string id;
  for (std::uint64_t rest = process ^ (++count * 0x9E3779B97F4A7C15u), i = 0; i < 16; ++i) {
    id.push_back(kDigits[rest & 15]);
    rest >>= 4;
  }
  return id;
}

// Why a request is answered before its handler sees it.
struct Refusal {
  int status = 400;
  std::string message;
};

HttpResponse response_of(const Refusal& refusal) {
  // The messages of this file need no escapes.
  const bool is_busy = refusal.status == 503;
  HttpResponse out{
      .status = refusal.status,
      .body = concat(R"({"type":"error","error":{"message":")", refusal.message, R"(","type":")",
                     is_busy ? "unavailable_error" : "invalid_request_error",
                     R"(","param":null,"code":null}})", "\n")};
  if (is_busy) out.fields.add("Retry-After", "1");
  return out;
}

using Parser = http::request_parser<http::string_body>;

// "/v1/models" of "http://localhost/v1/models", which clients send to proxies.
std::string_view without_authority(std::string_view target) {
  if (!target.starts_with("http://") && !target.starts_with("https://")) return target;
  const std::size_t path = target.find('/', target.find("://") + 3);
  return path == target.npos ? std::string_view("/") : target.substr(path);
}

// Whether the other end has closed its side.
bool is_gone(tcp::socket& socket) {
  pollfd one{.fd = socket.native_handle(), .events = POLLRDHUP, .revents = 0};
  return ::poll(&one, 1, 0) > 0 && one.revents != 0;
}

HttpRequest to_request(Parser::value_type& message) {
  const std::string target(without_authority({message.target().data(), message.target().size()}));
  const std::size_t query = target.find('?');
  HttpRequest request{
      .method = std::string(message.method_string()),
      .path = target.substr(0, query),
      .query = query == std::string::npos ? std::string() : target.substr(query + 1)};
  for (const auto& field : message) {
    request.fields.add(std::string(field.name_string()), std::string(field.value()));
  }
  request.body = std::move(message.body());
  const auto id = request.fields.find("x-request-id");
  const bool is_good = id && !id->empty() && id->size() <= kMostIdBytes && is_printable(*id);
  request.id = is_good ? std::string(*id) : make_id();
  return request;
}

std::optional<Refusal> head_refusal(const Parser::value_type& head) {
  if (head.version() != 11 && head.version() != 10) return Refusal{505, "HTTP/1.1 is expected."};
  if (std::distance(head.begin(), head.end()) > kMostFields) {
    return Refusal{431, "There are too many header fields."};
  }
  const auto coding = head[http::field::transfer_encoding];
  if (!coding.empty() && !beast::iequals(coding, "chunked")) {
    return Refusal{501, "The transfer encoding is not supported."};
  }
  const auto expect = head[http::field::expect];
  if (!expect.empty() && !beast::iequals(expect, "100-continue")) {
    return Refusal{417, "The expectation is unknown."};
  }
  return std::nullopt;
}

// Whether the client sends its body after "100 Continue" only.
bool waits_to_continue(const Parser::value_type& head) {
  return head.version() == 11 && !head[http::field::expect].empty();
}

// Nothing where nobody would read the answer, such as after a timeout, which closes the socket.
std::optional<Refusal> reading_refusal(ErrorCode error, const ListenerOptions& options) {
  if (error == http::error::body_limit) {
    return Refusal{413, concat("The body has more than ", options.max_body, " bytes.")};
  }
  if (error == http::error::header_limit || error == http::error::buffer_overflow) {
    return Refusal{431, "The header fields are too large."};
  }
  const bool is_http = error.category() == make_error_code(http::error::bad_method).category();
  if (is_http && error != http::error::end_of_stream && error != http::error::partial_message) {
    return Refusal{400, "The request is not HTTP."};
  }
  return std::nullopt;
}

// Reads what a client still sends until it closes, or the stream's time is up; then calls `end`.
void discard(const std::shared_ptr<beast::tcp_stream>& stream, std::function<void()> end) {
  const auto bytes = std::make_shared<std::array<char, 16384>>();
  stream->async_read_some(asio::buffer(*bytes),
                          [stream, bytes, end = std::move(end)](ErrorCode error, std::size_t) {
                            if (error) return end();
                            discard(stream, end);
                          });
}

class Connection;

// The acceptor, and what its connections share.
struct Core : std::enable_shared_from_this<Core> {
  using Handler = Listener::Handler;
  using Observer = Listener::Observer;

  Core(const ListenerOptions& options_in, Handler handler_in, Observer observer_in,
       Listener::Gate gate_in)
      : options(options_in),
        handler(std::move(handler_in)),
        observer(std::move(observer_in)),
        gate(std::move(gate_in)),
        context(1),
        acceptor(context),
        retry(context) {}

  void bind();
  void accept();

  const ListenerOptions options;
  const Handler handler;
  const Observer observer;
  const Listener::Gate gate;
  asio::io_context context;
  tcp::acceptor acceptor;
  asio::steady_timer retry;
  std::set<std::shared_ptr<Connection>> connections;  // on the thread of the listener
  std::atomic<Index> count{0};
  bool is_draining = false;  // on the thread of the listener
  std::thread thread;
};

// One client. Reads a request, waits for its answer, and so on.
class Connection : public std::enable_shared_from_this<Connection> {
 public:
  Connection(std::shared_ptr<Core> state, tcp::socket socket)
      : state_(std::move(state)),
        stream_(std::move(socket)),
        buffer_(kMostBuffered),
        watch_(state_->context) {}

  // `is_last`: the connection has one request.
  void start(bool is_last) {
    is_draining_ = is_last;
    ErrorCode ignored;
    stream_.socket().set_option(tcp::no_delay(true), ignored);
    wait_for_request();
  }
  void refuse_and_close(const Refusal& refusal) {
    is_unread_ = std::ssize(state_->connections) < 2 * state_->options.max_connections;
    begin_answer(HttpRequest{.method = "GET", .id = make_id()}, false, true);
    exchange_->respond(response_of(refusal));
  }
  // No further request is read.
  void drain() {
    is_draining_ = true;
    if (exchange_ == nullptr && !reads_) end();
  }
  void end() {
    if (std::exchange(has_ended_, true)) return;
    if (exchange_) exchange_->close();
    watch_.cancel();
    ErrorCode ignored;
    stream_.socket().shutdown(tcp::socket::shutdown_both, ignored);
    stream_.close();
    state_->count.store(std::ssize(state_->connections) - 1, std::memory_order_relaxed);
    state_->connections.erase(this->shared_from_this());
  }

 private:
  static constexpr std::size_t kMostBuffered = std::size_t{64} << 10;

  template <class Member>
  auto bind(Member member) {
    return [self = this->shared_from_this(), member](ErrorCode error, auto&&...) {
      if (!self->has_ended_) (self.get()->*member)(error);
    };
  }

  void wait_for_request() {
    exchange_.reset();
    parser_.emplace();
    parser_->header_limit(static_cast<std::uint32_t>(state_->options.max_head));
    parser_->body_limit(static_cast<std::uint64_t>(state_->options.max_body));
    if (buffer_.size() > 0) return read_head();
    stream_.expires_after(to_ms(state_->options.idle_s));
    reads_ = false;
    // Reads what is there, to know that a request begins.
    stream_.async_read_some(buffer_.prepare(4096),
                            [self = this->shared_from_this()](ErrorCode error, std::size_t bytes) {
                              if (self->has_ended_) return;
                              if (error) return self->end();
                              self->buffer_.commit(bytes);
                              self->read_head();
                            });
  }

  void read_head() {
    reads_ = true;
    stream_.expires_after(to_ms(state_->options.head_s));
    http::async_read_header(stream_, buffer_, *parser_, bind(&Connection::on_head));
  }

  void on_head(ErrorCode error) {
    if (error) return fail_reading(error);
    if (const auto refusal = head_refusal(parser_->get())) return refuse_unread(*refusal);
    if (parser_->content_length().value_or(parser_->chunked() ? kLargeBody : 0) >= kLargeBody &&
        state_->gate && !is_admitted()) {
      return;
    }
    stream_.expires_after(to_ms(state_->options.body_s));
    if (!waits_to_continue(parser_->get())) return read_body({});
    static constexpr std::string_view kContinue = "HTTP/1.1 100 Continue\r\n\r\n";
    asio::async_write(stream_, asio::buffer(kContinue), bind(&Connection::read_body));
  }

  // Whether the gate lets a request with this head in; refuses it otherwise.
  bool is_admitted() {
    HttpRequest request = to_request(parser_->get());
    const std::optional<HttpResponse> refusal = state_->gate(request);
    if (!refusal) return true;
    is_unread_ = true;
    begin_answer(std::move(request), false, true);
    exchange_->respond(*refusal);
    return false;
  }

  void read_body(ErrorCode error) {
    if (error) return end();
    http::async_read(stream_, buffer_, *parser_, bind(&Connection::on_request));
  }

  void on_request(ErrorCode error) {
    if (error) return fail_reading(error);
    const bool keeps_alive = parser_->keep_alive() && !is_draining_;
    const bool is_chunked = parser_->get().version() == 11;
    begin_answer(to_request(parser_->get()), keeps_alive, is_chunked);
    state_->handler(exchange_);
  }

  void begin_answer(HttpRequest request, bool keeps_alive, bool is_chunked) {
    stream_.expires_never();
    is_observed_ = false;
    exchange_ = std::make_shared<Exchange>(std::move(request), keeps_alive, is_chunked);
    // The exchange may live longer than the connection.
    const std::weak_ptr<Connection> weak = this->shared_from_this();
    exchange_->set_wake([weak, &context = state_->context] {
      if (const auto self = weak.lock()) {
        asio::post(context, [self] { self->send(); });
      }
    });
    watch();
  }

  // Notices that the client closes its end, also behind bytes of a next request, which stay where
  // they are.
  void watch() {
    const auto is_current = [self = this->shared_from_this(),
                             exchange = exchange_](ErrorCode error) {
      return !self->has_ended_ && !error && self->exchange_ == exchange;
    };
    stream_.socket().async_wait(tcp::socket::wait_read, [this, is_current](ErrorCode error) {
      if (!is_current(error)) return;
      if (is_gone(stream_.socket())) return end();
      watch_.expires_after(std::chrono::milliseconds(200));
      watch_.async_wait([this, is_current](ErrorCode late) {
        if (is_current(late)) watch();
      });
    });
  }

  void send() {
    if (has_ended_ || is_sending_ || exchange_ == nullptr) return;
    if (!std::exchange(is_observed_, true)) {
      state_->observer(exchange_->request(), exchange_->status());
    }
    unsent_ = exchange_->take();
    if (unsent_.empty()) {
      if (exchange_->is_complete()) finish_answer();
      return;
    }
    is_sending_ = true;
    stream_.expires_after(to_ms(state_->options.send_s));
    asio::async_write(stream_, asio::buffer(unsent_), bind(&Connection::on_sent));
  }

  void on_sent(ErrorCode error) {
    is_sending_ = false;
    if (error) return end();
    stream_.expires_never();
    send();
  }

  void finish_answer() {
    if (is_unread_) return linger();
    if (!exchange_->keeps_alive() || is_draining_) return end();
    wait_for_request();
  }

  // Lets a client that still sends its body read the answer before the connection closes.
  void linger() {
    constexpr double kLingerS = 2;
    exchange_.reset();
    ErrorCode ignored;
    stream_.socket().shutdown(tcp::socket::shutdown_send, ignored);
    stream_.expires_after(to_ms(kLingerS));
    const auto self = this->shared_from_this();
    discard({self, &stream_}, [self] { self->end(); });
  }

  void fail_reading(ErrorCode error) {
    const auto refusal = reading_refusal(error, state_->options);
    return refusal ? refuse_unread(*refusal) : end();
  }

  void refuse_unread(const Refusal& refusal) {
    is_unread_ = true;
    const bool has_head = parser_->is_header_done();
    HttpRequest request =
        has_head ? to_request(parser_->get()) : HttpRequest{.method = "GET", .id = make_id()};
    begin_answer(std::move(request), false, true);
    exchange_->respond(response_of(refusal));
  }

  const std::shared_ptr<Core> state_;
  beast::tcp_stream stream_;
  beast::flat_buffer buffer_;
  asio::steady_timer watch_;
  std::optional<Parser> parser_;
  std::shared_ptr<Exchange> exchange_;
  std::string unsent_;
  bool reads_ = false, is_sending_ = false, is_draining_ = false, has_ended_ = false;
  bool is_observed_ = false, is_unread_ = false;
};

void Core::bind() {
  ErrorCode error;
  tcp::resolver resolver(context);
  const auto addresses =
      resolver.resolve(options.host, std::to_string(options.port), tcp::resolver::passive, error);
  const std::string where = concat(options.host, ":", options.port);
  if (error || addresses.empty()) {
    fail(ErrorCategory::Io, "serve",
         concat("Could not find the address ", where, ": ", error.message(), "."));
  }
  const tcp::endpoint address = addresses.begin()->endpoint();
  const auto check = [&](std::string_view what) {
    if (error) {
      fail(ErrorCategory::Io, "serve",
           concat("Could not ", what, " ", where, ": ", error.message(), "."));
    }
  };
  acceptor.open(address.protocol(), error);
  check("open a socket for");
  acceptor.set_option(asio::socket_base::reuse_address(true), error);
  acceptor.bind(address, error);
  check("bind to");
  acceptor.listen(asio::socket_base::max_listen_connections, error);
  check("listen on");
}

void Core::accept() {
  acceptor.async_accept([self = shared_from_this()](ErrorCode error, tcp::socket socket) {
    if (!self->acceptor.is_open()) return;
    if (error) {  // such as too many open files
      self->retry.expires_after(std::chrono::milliseconds(50));
      self->retry.async_wait([self](ErrorCode) { self->accept(); });
      return;
    }
    const bool is_full = std::ssize(self->connections) >= self->options.max_connections;
    const auto connection = std::make_shared<Connection>(self, std::move(socket));
    self->connections.insert(connection);
    self->count.store(std::ssize(self->connections), std::memory_order_relaxed);
    if (is_full) {
      connection->refuse_and_close({503, "There are too many connections."});
    } else {
      connection->start(self->is_draining);
    }
    self->accept();
  });
}

}  // namespace

struct Listener::State : Core {
  using Core::Core;
};

Listener::Listener(const ListenerOptions& options, Handler handler, Observer observer, Gate gate)
    : state_(std::make_shared<State>(options, std::move(handler), std::move(observer),
                                     std::move(gate))) {
  HONE_CHECK(options.port >= 0 && options.port <= 65535, "port", "0 to 65535", options.port);
  HONE_CHECK(options.max_connections >= 1, "max connections", "at least 1",
             options.max_connections);
  HONE_CHECK(options.max_body >= 1, "max body", "at least 1 byte", options.max_body);
  state_->bind();
}

Listener::~Listener() { stop(); }

int Listener::port() const { return state_->acceptor.local_endpoint().port(); }
Index Listener::connections() const { return state_->count.load(std::memory_order_relaxed); }

void Listener::start() {
  state_->accept();
  state_->thread = std::thread([state = state_] { state->context.run(); });
}

void Listener::drain() {
  asio::post(state_->context, [state = state_] {
    state->is_draining = true;
    const auto all = state->connections;
    for (const auto& connection : all) connection->drain();
  });
}

void Listener::stop() {
  if (!state_->thread.joinable()) return;
  asio::post(state_->context, [state = state_] {
    ErrorCode ignored;
    state->acceptor.close(ignored);
    state->retry.cancel();
    const auto all = state->connections;
    for (const auto& connection : all) connection->end();
  });
  state_->thread.join();
  // What was posted too late would keep the state for ever, which keeps it.
  state_->context.restart();
  state_->context.poll();
}

}  // namespace hone::server
