// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "hone/server/api/generation.h"
#include "hone/server/api/prompt_scores.h"
#include "hone/server/tools/output_items.h"

namespace hone::server {

// How a completion or a chat completion is answered.
struct OpenAiOptions {
  bool is_chat = false, streams = false, includes_usage = false, returns_ids = false;
  bool has_logprobs = false;
  Index top_logprobs = 0;
  std::vector<Index> prompt_tokens{};  // of each prompt
  // Prompts in front of their choices; empty for none. With log probabilities, their ids and
  // scores.
  std::vector<std::string> echo{};
  std::vector<std::vector<infer::TokenId>> echo_ids{};
  std::vector<PromptScores> echo_scores{};
  Index choices_of_prompt = 1;  // choice c answers prompt c / choices_of_prompt
  // How many choices of a prompt are answered: the ones whose tokens are most likely on average; 0:
  // all.
  Index answered_choices = 0;
  OutputSyntax syntax{};  // of a chat
  std::string ignored{};  // names of fields for the header X-Hone-Ignored
};

// Answers in the shapes of /v1/completions and /v1/chat/completions, at once or as server-sent
// events.
class OpenAiAnswer final : public Answer {
 public:
  OpenAiAnswer(TextService& service, std::shared_ptr<Exchange> exchange, OpenAiOptions options);

  bool on_event(std::size_t choice, const infer::Event& event) override;
  void on_end() override;
  void on_error(const ApiError& error) override;
  void on_silence() override;

 private:
  class Deltas;
  struct Choice {
    Choice(const OutputSyntax& syntax, const std::string& seed) : items(syntax, seed) {}
    std::string text, finish_reason;  // the text of a completion
    OutputItems items;                // of a chat
    Index calls = 0;
    std::vector<infer::TokenId> ids;
    Json chat_logprobs = Json::array();
    Json tokens = Json::array(), token_logprobs = Json::array(), top_logprobs = Json::array(),
         offsets = Json::array();  // of a completion
    Index offset = 0;
    bool has_begun = false;
    infer::Timings timings{};
    double logprob = 0;  // of all tokens
  };

  void echo_prompt(Choice& choice, std::size_t prompt);
  void add_logprob(Choice& choice, infer::TokenId id, const Json& logprob,
                   std::span<const infer::TokenLogprob> most_likely);
  void begin_stream();
  bool send(const Json& json);
  Json head(std::string_view object) const;
  Json chunk(std::size_t index, Json delta, const Json& finish, Json logprobs);
  bool take_chat(std::size_t index, const infer::Event& event, Json logprobs);
  bool take_completion(std::size_t index, const infer::Event& event, Json logprobs);
  Json usage() const;
  Json logprobs_of(Choice& choice, const infer::Event& event);
  std::vector<std::size_t> answered() const;
  Json whole_choice(std::size_t index) const;
  static Json whole_message(const Choice& choice);

  TextService& service_;
  const std::shared_ptr<Exchange> exchange_;
  const OpenAiOptions options_;
  const std::string id_;
  const std::int64_t created_;
  std::vector<Choice> choices_;
  bool has_begun_ = false;
};

}  // namespace hone::server
