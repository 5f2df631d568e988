// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "hone/server/api/generation.h"

namespace hone::server {

// Answers in the shapes of /v1/messages, at once or as server-sent events.
class AnthropicAnswer final : public Answer {
 public:
  // `stops` are the stop sequences of the request, `ignored` names fields for X-Hone-Ignored.
  AnthropicAnswer(Service& service, std::shared_ptr<Exchange> exchange, bool streams,
                  Index prompt_tokens, std::vector<std::string> stops, std::string ignored);

  bool on_event(std::size_t choice, const infer::Event& event) override;
  void on_end() override;
  void on_error(const ApiError& error) override;
  void on_silence() override;

 private:
  bool begin();
  bool send(std::string_view event, Json data);
  Json message() const;
  Json usage() const;
  void note_end(const infer::Event& event);

  Service& service_;
  const std::shared_ptr<Exchange> exchange_;
  const bool streams_;
  const Index prompt_tokens_;
  const std::vector<std::string> stops_;
  const std::string ignored_;
  std::string text_;
  Json stop_reason_, stop_sequence_;
  infer::Timings timings_{};
  bool has_begun_ = false;
};

}  // namespace hone::server
