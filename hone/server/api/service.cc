// SPDX-License-Identifier: Apache-2.0
#include "hone/server/api/service.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "hone/core/check.h"
#include "hone/core/log.h"
#include "hone/core/version.h"
#include "hone/server/api/generation.h"

namespace hone::server {
namespace {

constexpr int kReaders = 2;
constexpr std::size_t kFormatBytes = 64 << 20;  // of compiled schemas that are kept
constexpr double kMostRetryS = 120;             // clients do not wait longer than that

}  // namespace

Workers::Workers(int threads) {
  for (int i = 0; i < threads; ++i) threads_.emplace_back([this] { run(); });
}

Workers::~Workers() {
  {
    const std::scoped_lock lock(mutex_);
    is_ending_ = true;
  }
  changed_.notify_all();
  for (std::thread& thread : threads_) thread.join();
}

void Workers::post(std::function<void()> job) {
  {
    const std::scoped_lock lock(mutex_);
    jobs_.push_back(std::move(job));
  }
  changed_.notify_one();
}

void Workers::run() {
  std::unique_lock lock(mutex_);
  for (;;) {
    changed_.wait(lock, [this] { return is_ending_ || !jobs_.empty(); });
    if (jobs_.empty()) return;
    const std::function<void()> job = std::move(jobs_.front());
    jobs_.pop_front();
    lock.unlock();
    try {
      job();
    } catch (const std::exception& error) {
      log_error(concat("[serve] ", error.what()));
    }
    lock.lock();
  }
}

Service::Service(ServedModel model, const Clock& clock)
    : model_(std::move(model)),
      clock_(clock),
      style_(find_chat_style(model_.chat_template != nullptr ? model_.chat_template->source()
                                                             : std::string())),
      formats_(kFormatBytes),
      fingerprint_(concat("hone-", model_.engine->info().isa, "-", model_.id)),
      writer_(1),
      workers_(kReaders) {
  const text::Tokenizer& tokenizer = model_.engine->tokenizer();
  std::size_t longest = 1;
  for (text::TokenId id = 0; id < tokenizer.vocab_size(); ++id) {
    longest = std::max({longest, tokenizer.piece_bytes(id).size(), tokenizer.piece(id).size()});
  }
  most_bytes_ = static_cast<Index>(longest) * model_.engine->info().context;
}

void Service::add_dirty(std::shared_ptr<Generation> generation) {
  const std::scoped_lock lock(mutex_);
  dirty_.push_back(std::move(generation));
}

void Service::on_step_end() {
  std::vector<std::shared_ptr<Generation>> dirty;
  {
    const std::scoped_lock lock(mutex_);
    dirty.swap(dirty_);
  }
  for (std::shared_ptr<Generation>& generation : dirty) {
    writer_.post([generation = std::move(generation)] { generation->drain(); });
  }
}

void Service::enter(const std::shared_ptr<Generation>& generation) {
  const std::scoped_lock lock(mutex_);
  open_.push_back(generation);
}

void Service::leave(const Generation* generation) {
  const std::scoped_lock lock(mutex_);
  std::erase_if(open_, [generation](const std::weak_ptr<Generation>& one) {
    const auto alive = one.lock();
    return alive == nullptr || alive.get() == generation;
  });
}

std::vector<std::shared_ptr<Generation>> Service::open_generations() {
  const std::scoped_lock lock(mutex_);
  std::vector<std::shared_ptr<Generation>> out;
  for (const std::weak_ptr<Generation>& one : open_) {
    if (auto alive = one.lock()) out.push_back(std::move(alive));
  }
  return out;
}

int Service::retry_after_s() const {
  const infer::EngineStats stats = engine().stats();
  const double running = static_cast<double>(std::max<Index>(1, stats.running));
  const double wait = metrics_.mean_request_s() * static_cast<double>(stats.waiting + 1) / running;
  return static_cast<int>(std::clamp(std::ceil(wait), 1.0, kMostRetryS));
}

}  // namespace hone::server
