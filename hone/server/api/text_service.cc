// SPDX-License-Identifier: Apache-2.0
#include "hone/server/api/text_service.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "hone/core/check.h"
#include "hone/core/version.h"
#include "hone/server/api/api_error.h"
#include "hone/server/api/generation.h"
#include "hone/server/api/routes.h"

namespace hone::server {
namespace {

constexpr std::size_t kFormatBytes = 64 << 20;  // of compiled schemas that are kept
constexpr double kMostRetryS = 120;             // clients do not wait longer than that
constexpr Index kMostHeld = 64;
constexpr double kSilenceS = 15;  // then a stream tells that it lives
// Then the service says that it is in trouble.
constexpr Index kMostStalledS = 60, kMostFailures = 8;

}  // namespace

TextService::TextService(ServedModel model, const Clock& clock)
    : model_(std::move(model)),
      clock_(clock),
      style_(find_chat_style(model_.chat_template != nullptr ? model_.chat_template->source()
                                                             : std::string())),
      formats_(kFormatBytes),
      fingerprint_(concat("hone-", model_.engine->info().isa, "-", model_.id)),
      routes_(text_routes(*this)),
      writer_(1),
      worker_(1) {
  const text::Tokenizer& tokenizer = model_.engine->tokenizer();
  std::size_t longest = 1;
  for (text::TokenId id = 0; id < tokenizer.vocab_size(); ++id) {
    longest = std::max({longest, tokenizer.piece_bytes(id).size(), tokenizer.piece(id).size()});
  }
  most_bytes_ = static_cast<Index>(longest) * model_.engine->info().context;
}

void TextService::add_dirty(std::shared_ptr<Generation> generation) {
  const std::scoped_lock lock(mutex_);
  dirty_.push_back(std::move(generation));
}

void TextService::on_step_end() {
  std::vector<std::shared_ptr<Generation>> dirty;
  {
    const std::scoped_lock lock(mutex_);
    dirty.swap(dirty_);
  }
  for (std::shared_ptr<Generation>& generation : dirty) {
    writer_.post([generation = std::move(generation)] { generation->drain(); });
  }
}

void TextService::enter(const std::shared_ptr<Generation>& generation) {
  const std::scoped_lock lock(mutex_);
  open_.push_back(generation);
}

void TextService::leave(const Generation* generation) {
  const std::scoped_lock lock(mutex_);
  std::erase_if(open_, [generation](const std::weak_ptr<Generation>& one) {
    const auto alive = one.lock();
    return alive == nullptr || alive.get() == generation;
  });
}

std::vector<std::shared_ptr<Generation>> TextService::open_generations() const {
  const std::scoped_lock lock(mutex_);
  std::vector<std::shared_ptr<Generation>> out;
  for (const std::weak_ptr<Generation>& one : open_) {
    if (auto alive = one.lock()) out.push_back(std::move(alive));
  }
  return out;
}

std::shared_ptr<void> TextService::hold() const {
  if (++*held_ > kMostHeld) {
    --*held_;
    throw passing_error(429, "Too many embeddings and scores of prompts wait.", "queue_full");
  }
  return {held_.get(), [held = held_](void*) { --*held; }};
}

void TextService::finish() {
  worker_.end();
  writer_.end();
}

std::string TextService::trouble() const {
  const Index stalled = stalled_s_;
  if (stalled >= kMostStalledS) return concat("No step has ended for ", stalled, " s.");
  const Index failures = metrics_.failures_in_row();
  if (failures >= kMostFailures) return concat("The last ", failures, " texts have failed.");
  return {};
}

void TextService::watch_steps() {
  const infer::EngineStats stats = engine().stats();
  const bool is_stalled = stats.running > 0 && stats.steps == last_steps_;
  stalled_s_ = is_stalled ? stalled_s_ + 1 : 0;
  last_steps_ = stats.steps;
}

void TextService::tick() {
  watch_steps();
  for (const auto& generation : open_generations()) generation->ping(kSilenceS);
}

void TextService::cancel_all() {
  for (const auto& generation : open_generations()) generation->cancel();
}

void TextService::write_metrics(MetricsText& out) const { metrics_.write(out, engine().stats()); }

int TextService::retry_after_s() const {
  const infer::EngineStats stats = engine().stats();
  const double running = static_cast<double>(std::max<Index>(1, stats.running));
  const double wait = metrics_.mean_request_s() * static_cast<double>(stats.waiting + 1) / running;
  return static_cast<int>(std::clamp(std::ceil(wait), 1.0, kMostRetryS));
}

}  // namespace hone::server
