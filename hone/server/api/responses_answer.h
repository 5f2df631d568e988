// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <string>

#include "hone/server/api/generation.h"
#include "hone/server/tools/output_items.h"

namespace hone::server {

struct ResponsesOptions {
  bool streams = false;
  Index prompt_tokens = 0;
  Json echoed{};  // the members of the response that repeat the request
  OutputSyntax syntax{};
  std::string ignored{};  // names of fields for the header X-Hone-Ignored
};

// Answers in the shapes of /v1/responses, at once or as server-sent events.
class ResponsesAnswer final : public Answer, private OutputListener {
 public:
  ResponsesAnswer(TextService& service, std::shared_ptr<Exchange> exchange,
                  ResponsesOptions options);

  bool on_event(std::size_t choice, const infer::Event& event) override;
  void on_end() override;
  void on_error(const ApiError& error) override;
  void on_silence() override;

 private:
  void on_begin(std::size_t index, const OutputItem& item) override;
  void on_text(std::size_t index, const OutputItem& item, std::string_view text) override;
  void on_end(std::size_t index, const OutputItem& item) override;
  void begin();
  void send(std::string_view type, const Json& data);
  std::string item_id(std::size_t index) const;
  Json item_json(std::size_t index, const OutputItem& item, std::string_view status) const;
  Json response() const;
  // The members that name a text in events.
  Json place(std::size_t index, const OutputItem& item) const;

  TextService& service_;
  const std::shared_ptr<Exchange> exchange_;
  const ResponsesOptions options_;
  const std::int64_t created_;
  OutputItems items_;
  std::string status_ = "in_progress";
  infer::Timings timings_{};
  Index sequence_ = 0;
  bool has_begun_ = false, goes_on_ = true;
};

}  // namespace hone::server
