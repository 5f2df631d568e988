// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <map>
#include <string>
#include <string_view>
#include <utility>

#include "hone/core/file/json_io.h"

namespace hone::test {

struct HttpAnswer {
  int status = 0;
  std::map<std::string, std::string> fields{};  // names in lower case
  std::string body{};                           // without the framing of chunks
  bool is_complete = false;

  Json json() const { return Json::parse(body); }
};

// A socket to a server of this machine that sends what it is told to, right or wrong.
class RawClient {
 public:
  explicit RawClient(int port) : socket_(::socket(AF_INET, SOCK_STREAM, 0)) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(static_cast<std::uint16_t>(port));
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    if (::connect(socket_, reinterpret_cast<const sockaddr*>(&address), sizeof(address)) != 0) {
      close();
    }
  }
  ~RawClient() { close(); }
  RawClient(const RawClient&) = delete;
  RawClient& operator=(const RawClient&) = delete;

  bool is_open() const { return socket_ >= 0; }
  void close() {
    if (socket_ >= 0) ::close(socket_);
    socket_ = -1;
  }
  void send(std::string_view bytes) {
    while (!bytes.empty()) {
      const auto sent = ::send(socket_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
      if (sent <= 0) return;
      bytes.remove_prefix(static_cast<std::size_t>(sent));
    }
  }
  // More bytes, or nothing if the server closes or is silent for so long.
  bool receive(double seconds = 20) {
    pollfd one{.fd = socket_, .events = POLLIN, .revents = 0};
    if (socket_ < 0 || ::poll(&one, 1, static_cast<int>(seconds * 1e3)) <= 0) return false;
    char bytes[65536];
    const auto got = ::recv(socket_, bytes, sizeof(bytes), 0);
    if (got <= 0) return false;
    received_.append(bytes, static_cast<std::size_t>(got));
    return true;
  }
  // What has come and was not read.
  const std::string& pending() const { return received_; }
  // Whether the server closes the connection without a word.
  bool is_closed_by_server(double seconds = 20) {
    pollfd one{.fd = socket_, .events = POLLIN, .revents = 0};
    char byte = 0;
    return ::poll(&one, 1, static_cast<int>(seconds * 1e3)) > 0 &&
           ::recv(socket_, &byte, 1, MSG_PEEK) <= 0;
  }

  // Reads one answer.
  HttpAnswer read() {
    HttpAnswer answer;
    while (received_.find("\r\n\r\n") == std::string::npos) {
      if (!receive()) return answer;
    }
    const std::size_t end = received_.find("\r\n\r\n");
    const std::string head = received_.substr(0, end + 2);
    received_.erase(0, end + 4);
    if (head.starts_with("HTTP/1.1 100")) return read();
    answer.status = std::atoi(head.c_str() + 9);
    for (std::size_t at = head.find("\r\n") + 2; at < head.size();) {
      const std::size_t line_end = head.find("\r\n", at), colon = head.find(": ", at);
      std::string name = head.substr(at, colon - at);
      for (char& c : name) c = c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c;
      answer.fields[name] = head.substr(colon + 2, line_end - colon - 2);
      at = line_end + 2;
    }
    if (answer.fields.contains("transfer-encoding")) {
      read_chunks(answer);
    } else {
      const std::size_t size = std::strtoull(answer.fields["content-length"].c_str(), nullptr, 10);
      while (received_.size() < size && receive()) {
      }
      answer.is_complete = received_.size() >= size;
      answer.body = received_.substr(0, size);
      received_.erase(0, size);
    }
    return answer;
  }

  HttpAnswer get(std::string_view path, std::string_view fields = "") {
    send("GET " + std::string(path) + " HTTP/1.1\r\nHost: localhost\r\n" + std::string(fields) +
         "\r\n");
    return read();
  }
  HttpAnswer post(std::string_view path, std::string_view body, std::string_view fields = "") {
    send(post_text(path, body, fields));
    return read();
  }
  HttpAnswer post_json(std::string_view path, const Json& body, std::string_view fields = "") {
    return post(path, std::string_view(body.dump()), fields);
  }
  static std::string post_text(std::string_view path, std::string_view body,
                               std::string_view fields = "") {
    return "POST " + std::string(path) +
           " HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: " +
           std::to_string(body.size()) + "\r\n" + std::string(fields) + "\r\n" + std::string(body);
  }

 private:
  void read_chunks(HttpAnswer& answer) {
    for (;;) {
      while (received_.find("\r\n") == std::string::npos) {
        if (!receive()) return;
      }
      const std::size_t end = received_.find("\r\n");
      const std::size_t size = std::strtoull(received_.c_str(), nullptr, 16);
      while (received_.size() < end + size + 4) {
        if (!receive()) return;
      }
      answer.body += received_.substr(end + 2, size);
      received_.erase(0, end + size + 4);
      if (size == 0) {
        answer.is_complete = true;
        return;
      }
    }
  }

  int socket_;
  std::string received_;
};

}  // namespace hone::test
