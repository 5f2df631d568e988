// SPDX-License-Identifier: Apache-2.0
#include "hone/server/api/embeddings.h"

#include <algorithm>
#include <cmath>
#include <exception>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "hone/core/base64.h"
#include "hone/core/check.h"
#include "hone/server/api/api_error.h"
#include "hone/server/api/between_steps.h"
#include "hone/server/api/json_text.h"
#include "hone/server/api/prompts.h"
#include "hone/server/api/request_fields.h"

namespace hone::server {
namespace {

using infer::TokenId;

constexpr std::size_t kMostInputs = 2048;

// On the thread of the engine.
std::vector<float> embed(infer::Engine& engine, std::vector<TokenId> tokens, bool is_mean,
                         std::uint64_t salt) {
  const auto count = static_cast<Index>(tokens.size());
  tokens.push_back(tokens.back());  // read() leaves out the last one
  const infer::HiddenStates states = engine.read(tokens, salt);
  const auto width = static_cast<std::size_t>(states.width);
  std::vector<double> sum(width);
  for (Index row = is_mean ? 0 : count - 1; row < count; ++row) {
    const float* const values = states.values.data() + row * states.width;
    for (std::size_t i = 0; i < width; ++i) sum[i] += values[i];
  }
  double squares = 0;
  for (const double x : sum) squares += x * x;
  const double scale = squares > 0 ? 1 / std::sqrt(squares) : 0;
  std::vector<float> out(width);
  std::ranges::transform(sum, out.begin(),
                         [scale](double x) { return static_cast<float>(x * scale); });
  return out;
}

struct EmbeddingJob {
  std::vector<std::vector<TokenId>> inputs{};
  bool is_mean = false, is_base64 = false;
  std::string model{};
  std::uint64_t salt = 0;
  std::vector<std::vector<float>> vectors{};

  Json answer() const {
    Json data = Json::array();
    Index tokens = 0;
    for (std::size_t i = 0; i < inputs.size(); ++i) {
      tokens += std::ssize(inputs[i]);
      const std::vector<float>& vector = vectors[i];
      data.push_back({{"object", "embedding"},
                      {"index", i},
                      {"embedding", is_base64 ? Json(to_base64(std::as_bytes(std::span(vector))))
                                              : Json(vector)}});
    }
    return {{"object", "list"},
            {"data", std::move(data)},
            {"model", model},
            {"usage", {{"prompt_tokens", tokens}, {"total_tokens", tokens}}}};
  }
};

}  // namespace

void post_embeddings(TextService& service, const std::shared_ptr<Exchange>& exchange,
                     std::uint64_t salt) {
  const Json body = parse_body(*exchange);
  Fields fields(body);
  check_model(fields, service.model().id);
  fields.refuse("dimensions");
  const auto job = std::make_shared<EmbeddingJob>();
  job->model = service.model().id;
  job->salt = salt;
  job->inputs = read_prompts(fields, "input", service, kMostInputs).ids;
  job->is_base64 = read_base64_choice(fields);
  const std::string pooling = fields.string("pooling").value_or("last");
  if (pooling != "last" && pooling != "mean") fields.fail("pooling", "last or mean");
  job->is_mean = pooling == "mean";
  const auto add = [exchange, job](infer::Engine& engine, std::size_t i) {
    if (exchange->is_closed()) return false;
    job->vectors.push_back(embed(engine, job->inputs[i], job->is_mean, job->salt));
    return true;
  };
  const auto respond = [&service, exchange, job,
                        held = service.hold()](const std::exception_ptr& error) {
    service.post([exchange, job, held, error] {
      try {
        if (error) std::rethrow_exception(error);
        respond_json(*exchange, job->answer());
      } catch (...) {
        exchange->respond(to_api_error(std::current_exception()).response());
      }
    });
  };
  post_pieces(service.engine(), {.pieces = job->inputs.size(), .run = add, .end = respond});
}

}  // namespace hone::server
