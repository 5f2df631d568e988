// SPDX-License-Identifier: Apache-2.0
#include "hone/server/http/exchange.h"

#include <array>
#include <cstdio>
#include <utility>

#include "hone/core/check.h"

namespace hone::server {
namespace {

std::string chunk(std::string_view piece) {
  std::array<char, 24> size{};
  std::snprintf(size.data(), size.size(), "%zx\r\n", piece.size());
  return concat(std::string_view(size.data()), piece, "\r\n");
}

}  // namespace

std::string Exchange::head(int status, std::string_view type, const HttpFields& fields) const {
  std::string out = concat("HTTP/1.1 ", status, " ", reason_phrase(status),
                           "\r\nContent-Type: ", type, "\r\nX-Request-Id: ", request_.id,
                           "\r\nX-Content-Type-Options: nosniff\r\nConnection: ",
                           keeps_alive_ ? "keep-alive" : "close", "\r\n");
  for (const auto& [name, value] : fields_.all()) out += concat(name, ": ", value, "\r\n");
  for (const auto& [name, value] : fields.all()) out += concat(name, ": ", value, "\r\n");
  return out;
}

void Exchange::push(std::string_view bytes, bool completes) {
  std::function<void()> wake;
  {
    const std::scoped_lock lock(mutex_);
    if (is_complete_) return;
    if (!is_closed_) out_ += bytes;
    is_complete_ = completes;
    wake = wake_;
  }
  if (wake) wake();
}

void Exchange::respond(const HttpResponse& response) {
  {
    const std::scoped_lock lock(mutex_);
    if (std::exchange(has_begun_, true)) return;
    status_ = response.status;
  }
  std::string out = head(response.status, response.type, response.fields);
  if (response.status != 204) out += concat("Content-Length: ", response.body.size(), "\r\n");
  push(concat(out, "\r\n", request_.method == "HEAD" ? std::string() : response.body), true);
}

void Exchange::begin_stream(std::string_view type, const HttpFields& fields) {
  {
    const std::scoped_lock lock(mutex_);
    if (std::exchange(has_begun_, true)) return;
    status_ = 200;
    if (!is_chunked_) keeps_alive_ = false;
  }
  push(concat(head(200, type, fields), is_chunked_ ? "Transfer-Encoding: chunked\r\n" : "", "\r\n"),
       false);
}

bool Exchange::write(std::string_view piece) {
  if (piece.empty()) return !is_closed();
  push(is_chunked_ ? chunk(piece) : std::string(piece), false);
  const std::scoped_lock lock(mutex_);
  return !is_closed_ && std::ssize(out_) <= kMostUnsentBytes;
}

void Exchange::end_stream(bool complete) {
  if (!complete) {
    const std::scoped_lock lock(mutex_);
    keeps_alive_ = false;
  }
  push(is_chunked_ && complete ? "0\r\n\r\n" : "", true);
}

void Exchange::on_close(std::function<void()> callback) {
  {
    const std::scoped_lock lock(mutex_);
    if (!is_closed_) {
      closed_callback_ = std::move(callback);
      return;
    }
  }
  callback();
}

bool Exchange::is_closed() const {
  const std::scoped_lock lock(mutex_);
  return is_closed_;
}

void Exchange::set_wake(std::function<void()> wake) {
  const std::scoped_lock lock(mutex_);
  wake_ = std::move(wake);
}

std::string Exchange::take() {
  const std::scoped_lock lock(mutex_);
  return std::exchange(out_, {});
}

bool Exchange::is_complete() const {
  const std::scoped_lock lock(mutex_);
  return is_complete_ && out_.empty();
}

bool Exchange::keeps_alive() const {
  const std::scoped_lock lock(mutex_);
  return keeps_alive_;
}

void Exchange::close() {
  std::function<void()> callback;
  {
    const std::scoped_lock lock(mutex_);
    if (std::exchange(is_closed_, true)) return;
    out_.clear();
    wake_ = nullptr;
    callback = std::exchange(closed_callback_, nullptr);
    if (is_complete_) callback = nullptr;
  }
  if (callback) callback();
}

int Exchange::status() const {
  const std::scoped_lock lock(mutex_);
  return status_;
}

}  // namespace hone::server
