// SPDX-License-Identifier: Apache-2.0
#include "hone/bench/stream_client.h"

#include <utility>  // before Boost 1.74, which forgets it

#include <array>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/core/tcp_stream.hpp>
#include <boost/beast/http/buffer_body.hpp>
#include <boost/beast/http/read.hpp>
#include <boost/beast/http/string_body.hpp>
#include <boost/beast/http/write.hpp>
#include <chrono>
#include <cstdint>
#include <limits>

#include "hone/core/check.h"
#include "hone/core/file/json_io.h"

namespace hone::bench {
namespace {

namespace beast = boost::beast;
namespace http = beast::http;
using Clock = std::chrono::steady_clock;

constexpr std::string_view kWhere = "bench serve";

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

// One request on one connection.
class Connection {
 public:
  Connection(const ServerUrl& url, http::verb method, const std::string& path,
             const std::string& key, std::string body)
      : stream_(context_) {
    boost::asio::ip::tcp::resolver resolver(context_);
    stream_.expires_never();
    stream_.connect(resolver.resolve(url.host, url.port));
    stream_.socket().set_option(boost::asio::ip::tcp::no_delay(true));
    http::request<http::string_body> request(method, url.path + path, 11, std::move(body));
    request.set(http::field::host, url.host + ":" + url.port);
    request.set(http::field::content_type, "application/json");
    if (!key.empty()) request.set(http::field::authorization, "Bearer " + key);
    request.prepare_payload();
    http::write(stream_, request);
    parser_.body_limit(std::numeric_limits<std::uint64_t>::max());
    http::read_header(stream_, buffer_, parser_);
  }

  int status() const { return parser_.get().result_int(); }

  // More of the body; empty at its end.
  std::string_view read() {
    while (!parser_.is_done()) {
      parser_.get().body().data = bytes_.data();
      parser_.get().body().size = bytes_.size();
      boost::system::error_code error;
      http::read_some(stream_, buffer_, parser_, error);
      if (error && error != http::error::need_buffer) throw boost::system::system_error(error);
      const std::size_t size = bytes_.size() - parser_.get().body().size;
      if (size > 0) return {bytes_.data(), size};
    }
    return {};
  }

  std::string read_all() {
    std::string out;
    for (std::string_view part = read(); !part.empty(); part = read()) out += part;
    return out;
  }

 private:
  boost::asio::io_context context_;
  beast::tcp_stream stream_;
  beast::flat_buffer buffer_;
  http::response_parser<http::buffer_body> parser_;
  std::array<char, 16384> bytes_{};
};

// Turns failures of the network into errors of hone.
template <class Work>
auto with_network_errors(const ServerUrl& url, const Work& work) {
  try {
    return work();
  } catch (const boost::system::system_error& error) {
    fail(ErrorCategory::Io, kWhere,
         concat("http://", url.host, ":", url.port,
                " cannot be reached or broke off: ", error.what()));
  }
}

void check_status(const ServerUrl& url, Connection& connection) {
  if (connection.status() == 200) return;
  fail_unsupported(kWhere, concat(url.name, " answered ", connection.status(), ": ",
                                  connection.read_all().substr(0, 300)));
}

void take_line(std::string_view line, Clock::time_point start, StreamTimes& times) {
  constexpr std::string_view kData = "data: ";
  if (!line.starts_with(kData) || line == "data: [DONE]") return;
  const Json event = parse_json(line.substr(kData.size()), "an event of the server");
  const auto choices = event.find("choices");
  if (choices != event.end() && !choices->empty() && !choices->front().value("text", "").empty()) {
    times.pieces.push_back(seconds_since(start));
  }
  const auto usage = event.find("usage");
  if (usage == event.end() || !usage->is_object()) return;
  times.tokens = usage->value("completion_tokens", Index{0});
  times.prompt_tokens = usage->value("prompt_tokens", Index{0});
}

}  // namespace

ServerUrl read_server_url(const std::string& text) {
  ServerUrl url;
  std::string_view rest = text;
  constexpr std::string_view kScheme = "http://";
  const std::size_t scheme = rest.find(kScheme);
  const bool has_name = scheme != rest.npos && scheme > 1 && rest[scheme - 1] == '=';
  if (has_name) {
    url.name = rest.substr(0, scheme - 1);
    rest.remove_prefix(scheme);
  }
  HONE_CHECK(rest.starts_with(kScheme), kWhere, "http://HOST:PORT/v1 or NAME=http://…", text);
  rest.remove_prefix(kScheme.size());
  const std::size_t slash = std::min(rest.find('/'), rest.size());
  std::string_view authority = rest.substr(0, slash);
  url.path = rest.substr(slash);
  while (url.path.ends_with('/')) url.path.pop_back();
  if (url.path.empty()) url.path = "/v1";
  const std::size_t colon = authority.rfind(':');
  url.host = authority.substr(0, std::min(colon, authority.size()));
  url.port = colon == authority.npos ? "80" : std::string(authority.substr(colon + 1));
  HONE_CHECK(!url.host.empty() && !url.port.empty(), kWhere, "a host and a port", text);
  if (url.name.empty()) url.name = std::string(authority);
  return url;
}

StreamTimes stream_completion(const ServerUrl& url, const StreamRequest& request) {
  const Json body = {{"model", request.model},
                     {"prompt", request.prompt},
                     {"max_tokens", request.tokens},
                     {"temperature", 0},
                     {"ignore_eos", true},
                     {"stream", true},
                     {"stream_options", {{"include_usage", true}}}};
  return with_network_errors(url, [&] {
    StreamTimes times;
    const Clock::time_point start = Clock::now();
    Connection connection(url, http::verb::post, "/completions", request.key, body.dump());
    check_status(url, connection);
    std::string pending;
    for (std::string_view part = connection.read(); !part.empty(); part = connection.read()) {
      pending += part;
      std::size_t begin = 0;
      for (std::size_t end = pending.find('\n'); end != pending.npos;
           end = pending.find('\n', begin)) {
        std::string_view line = std::string_view(pending).substr(begin, end - begin);
        if (line.ends_with('\r')) line.remove_suffix(1);
        take_line(line, start, times);
        begin = end + 1;
      }
      pending.erase(0, begin);
    }
    times.end = seconds_since(start);
    if (times.tokens == 0) times.tokens = std::ssize(times.pieces);
    return times;
  });
}

std::string first_model(const ServerUrl& url, const std::string& key) {
  return with_network_errors(url, [&] {
    Connection connection(url, http::verb::get, "/models", key, {});
    check_status(url, connection);
    const Json models = parse_json(connection.read_all(), "the list of models");
    const auto data = models.find("data");
    HONE_CHECK(data != models.end() && data->is_array() && !data->empty(), kWhere,
               concat("a model at ", url.name), "none");
    return data->front().value("id", std::string());
  });
}

}  // namespace hone::bench
