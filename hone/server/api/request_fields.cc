// SPDX-License-Identifier: Apache-2.0
#include "hone/server/api/request_fields.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <random>

#include "hone/core/check.h"
#include "hone/core/names.h"
#include "hone/server/api/api_error.h"

namespace hone::server {
namespace {

constexpr Index kMostSeed = (Index{1} << 53) - 1;  // what JSON keeps exactly

std::uint64_t drawn_seed() {
  thread_local std::random_device device;
  return (std::uint64_t{device()} << 32 | device()) & static_cast<std::uint64_t>(kMostSeed);
}

std::optional<float> small_number(Fields& fields, std::string_view name, double low, double high) {
  const std::optional<double> value = fields.number(name, low, high);
  return value ? std::optional(static_cast<float>(*value)) : std::nullopt;
}

void read_logit_bias(Fields& fields, Index vocab, infer::Request& request) {
  const Json* bias = fields.find("logit_bias");
  if (bias == nullptr) return;
  constexpr std::string_view kExpected = "an object of token ids and numbers of -100 to 100";
  if (!bias->is_object() || bias->size() > 1024) fields.fail("logit_bias", kExpected);
  for (const auto& [key, value] : bias->items()) {
    infer::LogitBias entry;
    const auto [end, error] = std::from_chars(key.data(), key.data() + key.size(), entry.id);
    const bool is_id =
        error == std::errc() && end == key.data() + key.size() && entry.id >= 0 && entry.id < vocab;
    if (!is_id || !value.is_number() || !(std::abs(value.get<double>()) <= 100)) {
      fields.fail("logit_bias", kExpected);
    }
    entry.bias = value.get<float>();
    request.sampling.logit_bias.push_back(entry);
  }
}

}  // namespace

void read_sampling(Fields& fields, const TextService& service, infer::Request& request) {
  const infer::ModelInfo& info = service.engine().info();
  const Index vocab = info.architecture.vocab_size;
  infer::SamplingParams& sampling = request.sampling;
  const infer::SamplingChoice choice{
      .temperature = small_number(fields, "temperature", 0, 5),
      .top_p = small_number(fields, "top_p", 0, 1),
      .min_p = small_number(fields, "min_p", 0, 1),
      .repetition_penalty = small_number(fields, "repetition_penalty", 0.1, 10),
      .top_k = fields.integer("top_k", -1, vocab)};
  infer::SamplingChoice used = choice;
  if (used.top_k == -1) used.top_k = 0;        // all, as other servers spell it
  if (used.top_p == 0.0F) used.top_p = 1e-6F;  // the most likely token
  sampling.presence_penalty = small_number(fields, "presence_penalty", -2, 2).value_or(0);
  sampling.frequency_penalty = small_number(fields, "frequency_penalty", -2, 2).value_or(0);
  read_logit_bias(fields, vocab, request);
  const auto seed = fields.integer("seed", -kMostSeed, kMostSeed);
  sampling.seed = seed ? static_cast<std::uint64_t>(*seed) : drawn_seed();
  sampling = infer::resolve_sampling(sampling, used, info.generation_defaults);
  request.stop = fields.strings("stop", 16);
  std::erase_if(request.stop, [](const std::string& stop) { return stop.empty(); });
  if (const Json* ids = fields.find("stop_token_ids")) {
    if (!ids->is_array() || ids->size() > 32) fields.fail("stop_token_ids", "up to 32 token ids");
    for (const Json& id : *ids) {
      if (!id.is_number_integer() || id < 0 || id >= vocab) {
        fields.fail("stop_token_ids", concat("token ids below ", vocab));
      }
      request.stop_ids.push_back(id.get<infer::TokenId>());
    }
  }
  request.min_tokens = fields.integer("min_tokens", 0, info.context).value_or(0);
  request.ignore_eos = fields.boolean("ignore_eos").value_or(false);
  request.timeout_s = fields.number("timeout", 0.1, 3600).value_or(0);
  if (const auto priority = fields.string("priority")) {
    if (*priority != "normal" && *priority != "low") fields.fail("priority", "normal or low");
    if (*priority == "low") request.priority = infer::Priority::Low;
  }
}

ResponseSchema read_response_format(Fields& fields) {
  const Json* format = fields.find("response_format");
  if (format == nullptr) return {};
  Fields inner(*format, "response_format");
  const std::string type = inner.required_string("type");
  if (type == "text") return {};
  if (type == "json_object") return {R"({"type":"object"})", "response_format"};
  if (type != "json_schema") inner.fail("type", "text, json_object or json_schema");
  const Json* description = inner.find("json_schema");
  if (description == nullptr) inner.fail("json_schema", "an object with a schema");
  Fields named(*description, "response_format.json_schema");
  const Json* schema = named.find("schema");
  if (schema == nullptr) named.fail("schema", "a JSON schema");
  return {schema->dump(), named.path_of("schema")};
}

void check_context(Index prompt_tokens, const TextService& service, const std::string& param) {
  const Index context = service.engine().info().context;
  if (prompt_tokens < context) return;
  ApiError error(400,
                 concat("context_length_exceeded: the prompt of ", prompt_tokens,
                        " tokens exceeds the available context size of ", context,
                        " tokens. This model's maximum context length is ", context, " tokens."),
                 param, "context_length_exceeded");
  error.details = {{"n_prompt_tokens", prompt_tokens}, {"n_ctx", context}};
  throw error;
}

void check_bytes(Index bytes, const TextService& service, const std::string& param) {
  if (bytes <= service.most_bytes()) return;
  const Index context = service.engine().info().context;
  ApiError error(400,
                 concat("context_length_exceeded: the prompt of ", bytes,
                        " bytes exceeds the available context size of ", context, " tokens."),
                 param, "context_length_exceeded");
  error.details = {{"n_ctx", context}};
  throw error;
}

}  // namespace hone::server
