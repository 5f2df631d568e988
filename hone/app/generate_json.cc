// SPDX-License-Identifier: Apache-2.0
#include "hone/app/generate_json.h"

#include <utility>

namespace hone::app {
namespace {

// A model may have more rows than its tokenizer has pieces.
bool has_piece(const infer::Engine& engine, infer::TokenId id) {
  return engine.has_tokenizer() && id < engine.tokenizer().vocab_size();
}

}  // namespace

Json timings_json(const infer::Timings& timings) {
  return {{"prompt_tokens", timings.prompt_tokens}, {"prompt_per_s", timings.prompt_per_s()},
          {"gen_tokens", timings.generated_tokens}, {"gen_per_s", timings.decode_per_s()},
          {"ttft_ms", timings.ttft_s * 1e3},        {"prompt_ms", timings.prompt_s * 1e3},
          {"gen_ms", timings.decode_s * 1e3}};
}

std::string text_of(const infer::Engine& engine, std::vector<infer::TokenId> ids) {
  std::erase_if(ids, [&](infer::TokenId id) { return !has_piece(engine, id); });
  return ids.empty() ? std::string() : engine.tokenizer().decode(ids);
}

Json logprobs_json(const infer::Engine& engine, std::span<const infer::Event> events) {
  const auto piece = [&](infer::TokenId id) {
    return has_piece(engine, id) ? Json(engine.tokenizer().piece(id)) : Json();
  };
  Json rows = Json::array();
  for (const infer::Event& event : events) {
    if (!event.token) continue;
    Json top = Json::array();
    for (const infer::TokenLogprob& entry : event.top) {
      top.push_back({{"id", entry.id}, {"piece", piece(entry.id)}, {"logprob", entry.logprob}});
    }
    rows.push_back({{"id", *event.token},
                    {"piece", piece(*event.token)},
                    {"logprob", event.logprob},
                    {"top", std::move(top)}});
  }
  return rows;
}

}  // namespace hone::app
