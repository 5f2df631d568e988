// SPDX-License-Identifier: Apache-2.0
#include "hone/cli/runtime_options.h"

#include <charconv>
#include <limits>

#include "hone/cli/validators.h"
#include "hone/core/check.h"
#include "hone/core/file/file_io.h"

namespace hone::cli {

infer::KvDtype RuntimeChoice::kv_dtype() const {
  if (kv == "int8") return infer::KvDtype::Int8;
  return kv == "f16" ? infer::KvDtype::Float16 : infer::KvDtype::Float32;
}

infer::Activations RuntimeChoice::activations() const {
  return act == "i8" ? infer::Activations::Int8 : infer::Activations::Float32;
}

void add_runtime_options(CLI::App& verb, RuntimeChoice& choice) {
  verb.add_option("--kv", choice.kv,
                  "Type of the KV cache: f16, f32, int8 (about half the size of f16)")
      ->check(CLI::IsMember({"f16", "f32", "int8"}))
      ->capture_default_str();
  verb.add_option("--act", choice.act, "Type of the activations with quantized weights: i8, f32")
      ->check(CLI::IsMember({"i8", "f32"}))
      ->capture_default_str();
}

void add_context_options(CLI::App& verb, infer::EngineOptions& engine, Index* kv_mb) {
  verb.add_option("--ctx", engine.context, "Context length in tokens (default: the model's)")
      ->check(whole_number(0));
  if (kv_mb == nullptr) return;
  verb.add_option("--kv-mb", *kv_mb,
                  "MiB (2^20 bytes) for the KV cache (default: what is needed, at most half of the "
                  "free memory)")
      ->check(whole_number(1, Index{1} << 30));
}

CLI::Option* add_draft_option(CLI::App& verb, std::string& draft) {
  return verb
      .add_option("--draft", draft,
                  "Speculative decoding: guess several tokens and verify them at once; 'ngram' "
                  "guesses from the text itself, a MODEL with the same vocabulary guesses by "
                  "decoding")
      ->check(not_empty("ngram or a model"));
}

void set_draft(const std::string& draft, infer::EngineOptions& engine) {
  if (draft == "ngram") {
    engine.draft.ngram = true;
  } else {
    engine.draft.model = draft;
  }
}

std::optional<Index> read_draft_depth(const std::string& option) {
  if (option == "auto") return std::nullopt;
  Index depth = 0;
  const char* last = option.data() + option.size();
  const auto [end, error] = std::from_chars(option.data(), last, depth);
  const bool is_number = error == std::errc() && end == last;
  HONE_CHECK(is_number && depth >= 1 && depth <= infer::kMaxDraftDepth, "--spec-k",
             concat("auto or 1 to ", infer::kMaxDraftDepth), option);
  return depth;
}

std::vector<infer::TokenId> read_token_ids(const std::string& path) {
  const Json document = read_json_file(path);
  const bool has_tokens = document.is_object() && document.contains("tokens");
  const Json& json = has_tokens ? document["tokens"] : document;
  if (!json.is_array()) {
    fail_corrupt(path, "a JSON array of token ids, or an object that has it as \"tokens\"",
                 json.type_name());
  }
  for (const Json& id : json) {
    const bool is_id =
        id.is_number_integer() && id >= 0 && id <= std::numeric_limits<infer::TokenId>::max();
    if (!is_id) fail_corrupt(path, "whole numbers from 0 as token ids", id.dump());
  }
  return json.get<std::vector<infer::TokenId>>();
}

}  // namespace hone::cli
