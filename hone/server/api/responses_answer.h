// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <string>

#include "hone/server/api/generation.h"

namespace hone::server {

// Answers in the shapes of /v1/responses, at once or as server-sent events.
class ResponsesAnswer final : public Answer {
 public:
  // `echoed` has the members of the response that repeat the request.
  ResponsesAnswer(Service& service, std::shared_ptr<Exchange> exchange, bool streams,
                  Index prompt_tokens, Json echoed, std::string ignored);

  bool on_event(std::size_t choice, const infer::Event& event) override;
  void on_end() override;
  void on_error(const ApiError& error) override;
  void on_silence() override;

 private:
  bool begin();
  bool send(std::string_view type, const Json& data);
  Json item(std::string_view status) const;
  Json part() const;
  Json response() const;
  // The members that name the text in events.
  Json place() const;

  Service& service_;
  const std::shared_ptr<Exchange> exchange_;
  const bool streams_;
  const Index prompt_tokens_;
  const Json echoed_;
  const std::string ignored_, item_id_;
  const std::int64_t created_;
  std::string text_, status_ = "in_progress";
  infer::Timings timings_{};
  Index sequence_ = 0;
  bool has_begun_ = false;
};

}  // namespace hone::server
