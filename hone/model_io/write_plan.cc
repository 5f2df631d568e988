// SPDX-License-Identifier: Apache-2.0
#include "hone/model_io/write_plan.h"

#include <algorithm>
#include <array>
#include <unordered_map>

#include "hone/core/bf16.h"
#include "hone/core/check.h"
#include "hone/core/format/matrix_type.h"
#include "hone/core/names.h"
#include "hone/model_io/metadata/hf_metadata.h"
#include "hone/model_io/tensor_plan.h"
#include "hone/text/format/tokenizer_json.h"

namespace hone::model_io {

namespace fs = std::filesystem;

std::vector<const NamedMatrix*> order_tensors(const ModelSource& source, const std::string& where) {
  std::unordered_map<std::string_view, const NamedMatrix*> by_name;
  for (const NamedMatrix& tensor : source.tensors)
    HONE_REQUIRE(by_name.emplace(tensor.name, &tensor).second, where,
                 concat("Tensor ", tensor.name, " occurs twice."));
  std::vector<const NamedMatrix*> ordered;
  for (const PlannedTensor& planned : plan_tensors(source.architecture)) {
    const auto at = by_name.find(planned.name);
    HONE_REQUIRE(at != by_name.end(), where, concat("There is no tensor ", planned.name, "."));
    const NamedMatrix& tensor = *at->second;
    HONE_CHECK(tensor.matrix.rows == planned.rows && tensor.matrix.cols == planned.cols &&
                   tensor.is_vector == planned.is_vector,
               where, concat("[", planned.rows, ", ", planned.cols, "] for ", planned.name),
               concat("[", tensor.matrix.rows, ", ", tensor.matrix.cols, "]"));
    ordered.push_back(&tensor);
  }
  HONE_CHECK(ordered.size() == by_name.size(), where, concat(ordered.size(), " tensors"),
             by_name.size());
  return ordered;
}

namespace {

// A row of it is added to the activations of its position, where nothing averages errors.
constexpr std::string_view kPositions = "model.embed_positions.weight";

}  // namespace

StoreType choose_type(const NamedMatrix& tensor, std::optional<StoreType> requested,
                      WriteReport& report) {
  if (tensor.is_vector) return StoreType::F32;
  const auto keep_f16 = [&](std::string reason) {
    report.kept.push_back({tensor.name, "f16", std::move(reason)});
    return StoreType::F16;
  };
  if (!requested) requested = stored_type(tensor.matrix);
  if (requested && is_quantized(*requested) && tensor.name == kPositions) {
    const StoreType own = stored_type(tensor.matrix).value_or(StoreType::F16);
    report.kept.push_back({tensor.name, std::string(name_of(own)), "positions are not quantized"});
    return own;
  }
  if (!requested) return keep_f16(concat(type_text(tensor.matrix), " has no type in this format"));
  if (is_quantized(*requested) && tensor.matrix.cols % kQ8_0Block != 0)
    return keep_f16(concat(tensor.matrix.cols, " columns are not a multiple of ", kQ8_0Block));
  return *requested;
}

namespace {

// What is lost of a matrix by rounding it to 16 bits, as a share of its sum of squares.
struct RoundingLoss {
  double f16 = 0, bf16 = 0;
};

RoundingLoss rounding_loss(const StoredMatrix& matrix) {
  std::vector<float> row(static_cast<std::size_t>(matrix.cols));
  double all = 0;
  RoundingLoss lost;
  const auto square = [](double value) { return value * value; };
  for (Index r = 0; r < matrix.rows; ++r) {
    decode_row(matrix, r, row);
    for (const float value : row) {
      all += square(value);
      lost.f16 += square(f16_to_float(float_to_f16(value)) - value);
      lost.bf16 += square(bf16_to_float(float_to_bf16(value)) - value);
    }
  }
  if (!(all > 0)) return {};
  return {lost.f16 / all, lost.bf16 / all};
}

bool is_packed(const NamedMatrix& tensor) { return tensor.matrix.layout != WeightLayout::Dense; }

}  // namespace

Index count_quantized(std::span<const NamedMatrix> tensors) {
  return std::ranges::count_if(tensors, is_packed);
}

StoreType choose_decoded_type(std::span<const NamedMatrix> tensors) {
  RoundingLoss worst;
  for (const NamedMatrix& tensor : tensors) {
    const auto own = stored_type(tensor.matrix);
    if (!tensor.is_vector && (own == StoreType::F16 || own == StoreType::BF16)) return *own;
  }
  for (const NamedMatrix& tensor : tensors) {
    if (!is_packed(tensor)) continue;
    const RoundingLoss loss = rounding_loss(tensor.matrix);
    worst = {std::max(worst.f16, loss.f16), std::max(worst.bf16, loss.bf16)};
  }
  return worst.f16 > worst.bf16 ? StoreType::BF16 : StoreType::F16;
}

std::string_view torch_name_of(StoreType type) {
  if (type == StoreType::F16) return "float16";
  return type == StoreType::BF16 ? "bfloat16" : "float32";
}

void write_hugging_face_texts(const fs::path& folder, const ModelSource& source, Json config) {
  Json generation = source.generation_defaults;
  for (const char* key : {"bos_token_id", "eos_token_id"}) generation[key] = config[key];
  if (source.tokenizer != nullptr && source.tokenizer->vocabulary().padding)
    generation["pad_token_id"] = *source.tokenizer->vocabulary().padding;
  const std::string card = card_of(source.metadata);
  if (!card.empty()) write_text_file(folder / "README.md", card);
  if (Json kept = gguf_metadata_value(source.metadata, card); !kept.empty())
    config[kGgufMetadata] = std::move(kept);
  write_json_file(folder / "config.json", config);
  write_json_file(folder / "generation_config.json", generation);
  if (source.tokenizer == nullptr) return;
  const text::Vocabulary& vocabulary = source.tokenizer->vocabulary();
  write_json_file(folder / "tokenizer.json", text::to_tokenizer_json(vocabulary));
  Json tokenizer_config = text::to_tokenizer_config_json(vocabulary);
  tokenizer_config["model_max_length"] = source.architecture.context;
  if (Json chat = chat_template_value(source.metadata); !chat.is_null())
    tokenizer_config["chat_template"] = std::move(chat);
  write_json_file(folder / "tokenizer_config.json", tokenizer_config);
}

namespace {

// Whether a model folder, hone's or another program's, may contain this file.
bool belongs_to_model(const std::string& name) {
  constexpr std::array<std::string_view, 13> kModelFiles = {"README.md",
                                                            "config.json",
                                                            "generation_config.json",
                                                            "tokenizer.json",
                                                            "tokenizer.model",
                                                            "tokenizer_config.json",
                                                            "special_tokens_map.json",
                                                            "added_tokens.json",
                                                            "vocab.json",
                                                            "merges.txt",
                                                            "chat_template.jinja",
                                                            "recipe.toml",
                                                            "quality.json"};
  const bool weights = name.starts_with("model") && (name.ends_with(".safetensors") ||
                                                     name.ends_with(".safetensors.index.json"));
  return weights || std::ranges::find(kModelFiles, name) != kModelFiles.end();
}

}  // namespace

void check_model_folder(const fs::path& path) {
  check_output_spares_current(path);
  const fs::path folder = output_target(path);
  if (!fs::exists(folder)) return;
  const std::string where = path.string();
  HONE_REQUIRE(fs::is_directory(folder), where, "The output must be a folder, but this is a file.");
  if (fs::is_empty(folder)) return;
  HONE_REQUIRE(fs::exists(folder / "config.json"), where,
               "This folder has files but no model, so it is not replaced.");
  for (const auto& entry : fs::directory_iterator(folder)) {
    const std::string name = entry.path().filename().string();
    HONE_REQUIRE(!entry.is_directory() && belongs_to_model(name), where,
                 concat("This folder has ", quote_name(name),
                        ", which is not part of a model, so it is not replaced."));
  }
}

void check_model_file(const fs::path& path) {
  const fs::path file = output_target(path);
  if (!fs::exists(file)) return;
  HONE_REQUIRE(!fs::is_directory(file), path.string(),
               "The output must be a file, but this is a folder.");
  HONE_REQUIRE(fs::is_regular_file(file), path.string(),
               "The output must be a file or a new name, but this is a device or a pipe.");
  HONE_REQUIRE(is_replaceable(file), path.string(),
               "This file is neither a GGUF nor a llama2.c model, so it is not replaced.");
}

Index bytes_in(const fs::path& folder) {
  Index total = 0;
  for (const auto& entry : fs::directory_iterator(folder))
    total += static_cast<Index>(entry.file_size());
  return total;
}

}  // namespace hone::model_io
