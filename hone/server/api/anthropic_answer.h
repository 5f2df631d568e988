// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "hone/server/api/generation.h"
#include "hone/server/tools/output_items.h"

namespace hone::server {

struct AnthropicOptions {
  bool streams = false;
  Index prompt_tokens = 0;
  std::vector<std::string> stops{};  // the stop sequences of the request
  OutputSyntax syntax{};
  std::string ignored{};  // names of fields for the header X-Hone-Ignored
};

// Answers in the shapes of /v1/messages, at once or as server-sent events.
class AnthropicAnswer final : public Answer, private OutputListener {
 public:
  AnthropicAnswer(TextService& service, std::shared_ptr<Exchange> exchange,
                  AnthropicOptions options);

  bool on_event(std::size_t choice, const infer::Event& event) override;
  void on_end() override;
  void on_error(const ApiError& error) override;
  void on_silence() override;

 private:
  void on_begin(std::size_t index, const OutputItem& item) override;
  void on_text(std::size_t index, const OutputItem& item, std::string_view text) override;
  void on_end(std::size_t index, const OutputItem& item) override;
  bool begin();
  bool send(std::string_view event, Json data);
  Json message() const;
  Json usage() const;
  void note_end(const infer::Event& event);

  TextService& service_;
  const std::shared_ptr<Exchange> exchange_;
  const AnthropicOptions options_;
  OutputItems items_;
  Json stop_reason_, stop_sequence_;
  infer::Timings timings_{};
  bool has_begun_ = false, goes_on_ = true;
};

}  // namespace hone::server
