// SPDX-License-Identifier: Apache-2.0
#include "hone/model_io/model_file.h"

#include <algorithm>
#include <cstring>
#include <iterator>
#include <map>
#include <unordered_set>

#include "hone/core/check.h"
#include "hone/core/file/sha256.h"
#include "hone/core/log.h"
#include "hone/core/names.h"
#include "hone/model_io/family/file_tensors.h"
#include "hone/model_io/loaded_model.h"
#include "hone/text/vocabulary.h"

namespace hone::model_io {
namespace {

namespace fs = std::filesystem;

void check_shape(const PlannedTensor& plan, const NamedMatrix& tensor, const std::string& where) {
  const bool same = tensor.matrix.rows == plan.rows && tensor.matrix.cols == plan.cols &&
                    tensor.is_vector == plan.is_vector;
  if (same) return;
  fail_corrupt(
      where, concat("shape ", shape_text(plan.rows, plan.cols, plan.is_vector), " for ", plan.name),
      shape_text(tensor.matrix.rows, tensor.matrix.cols, tensor.is_vector));
}

void check_type(const NamedMatrix& tensor, const std::string& where) {
  const StoredMatrix& matrix = tensor.matrix;
  if (matrix.layout == WeightLayout::Dense && matrix.dtype != Dtype::Float32 &&
      matrix.dtype != Dtype::Float16 && matrix.dtype != Dtype::BFloat16)
    fail_unsupported(where, concat("f32, f16 or bf16 for ", quote_name(tensor.name)),
                     name_of(matrix.dtype));
  if (matrix.layout != WeightLayout::Dense && tensor.is_vector)
    fail_unsupported(where, concat("f32, f16 or bf16 for ", quote_name(tensor.name)),
                     "a quantized vector");
}

bool begins_with(const fs::path& path, std::string_view magic) {
  const MmapFile file(path);
  return file.bytes().size() >= magic.size() &&
         std::memcmp(file.bytes().data(), magic.data(), magic.size()) == 0;
}

}  // namespace

std::string_view name_of(ModelFormat format) {
  switch (format) {
    case ModelFormat::HuggingFace:
      return "huggingface";
    case ModelFormat::HoneArtifact:
      return "hone";
    case ModelFormat::Gguf:
      return "gguf";
    case ModelFormat::Llama2c:
      break;
  }
  return "llama2.c";
}

const NamedMatrix* ModelFile::find(std::string_view name) const {
  if (!by_name_.empty()) {
    const auto at = by_name_.find(name);
    return at == by_name_.end() ? nullptr : &tensors()[at->second];
  }
  for (const NamedMatrix& tensor : tensors()) {
    if (tensor.name == name) return &tensor;
  }
  return nullptr;
}

const NamedMatrix& ModelFile::tensor(std::string_view name) const {
  const NamedMatrix* found = find(name);
  if (found == nullptr) fail_corrupt("model", concat("There is no tensor ", name, "."));
  return *found;
}

void ModelFile::index_tensors() {
  by_name_.clear();
  by_name_.reserve(tensors().size());
  for (std::size_t i = 0; i < tensors().size(); ++i) by_name_.emplace(tensors()[i].name, i);
}

std::vector<fs::path> LoadedModel::files() const {
  std::vector<fs::path> paths;
  for (const MmapFile& mapping : mappings) paths.push_back(mapping.path());
  return paths;
}

void LoadedModel::drop_pages(const NamedMatrix& tensor) const {
  for (const auto part : {tensor.matrix.bytes, tensor.matrix.quant.codes}) {
    for (const MmapFile& mapping : mappings) {
      const std::byte* begin = mapping.bytes().data();
      const std::byte* end = begin + mapping.bytes().size();
      if (!part.empty() && part.data() >= begin && part.data() < end) mapping.drop_pages(part);
    }
  }
}

bool LoadedModel::is_damaged() const {
  return std::ranges::any_of(mappings, [](const MmapFile& file) { return file.is_damaged(); });
}

void LoadedModel::check_intact() const {
  for (const MmapFile& file : mappings) file.check_intact();
}

std::string LoadedModel::identity() const {
  // Everything before the first tensor of a mapping is header.
  std::map<const std::byte*, const std::byte*> data;  // by begin
  for (const MmapFile& file : mappings) {
    data[file.bytes().data()] = file.bytes().data() + file.bytes().size();
  }
  for (const NamedMatrix& tensor : matrices) {
    for (const auto part : {tensor.matrix.bytes, tensor.matrix.quant.codes}) {
      const auto after = data.upper_bound(part.data());
      if (part.empty() || after == data.begin()) continue;
      const std::byte*& first = std::prev(after)->second;
      first = std::min(first, part.data());
    }
  }
  std::string text;
  for (const MmapFile& file : mappings) {
    const std::byte* const begin = file.bytes().data();
    text += concat(sha256_hex({begin, data.at(begin)}), " ", file.state().size, " ",
                   file.state().modified_ns, "\n");
  }
  return sha256_hex_of_text(text);
}

void LoadedModel::finish(const std::string& where) {
  validate(arch, where);
  index_tensors();
  const std::vector<PlannedTensor> plan = plan_tensors(arch);
  for (const PlannedTensor& planned : plan) {
    const NamedMatrix* tensor = find(planned.name);
    if (tensor == nullptr)
      fail_corrupt(where, concat("There is no tensor ", planned.name, " of shape ",
                                 shape_text(planned.rows, planned.cols, planned.is_vector), "."));
    check_shape(planned, *tensor, where);
    check_type(*tensor, where);
  }
  if (matrices.size() > plan.size()) {
    std::unordered_set<std::string_view> known;
    for (const PlannedTensor& planned : plan) known.insert(planned.name);
    for (const NamedMatrix& tensor : matrices) {
      if (!known.contains(tensor.name))
        fail_corrupt(where, concat(quote_name(tensor.name), " is not a tensor of this ",
                                   arch.family, " model."));
    }
    fail_corrupt(where, "A tensor occurs twice.");
  }
  fit_vocabulary(where);
}

void LoadedModel::fit_vocabulary(const std::string& where) {
  if (vocabulary == nullptr || vocabulary->vocab_size() <= arch.vocab_size) return;
  text::Vocabulary fitting = vocabulary->vocabulary();
  const auto rows = static_cast<std::size_t>(arch.vocab_size);
  const auto is_added = [&](text::TokenType type) {
    return type == text::TokenType::Control || type == text::TokenType::UserDefined;
  };
  if (!std::all_of(fitting.types.begin() + arch.vocab_size, fitting.types.end(), is_added)) {
    fail_corrupt(where, concat("a tokenizer of at most ", arch.vocab_size, " tokens"),
                 concat(vocabulary->vocab_size()));
  }
  log_warning(concat(where, ": The model has no rows for the last ", fitting.pieces.size() - rows,
                     " added tokens of its tokenizer, which are left out."));
  fitting.pieces.resize(rows);
  fitting.types.resize(rows);
  if (!fitting.scores.empty()) fitting.scores.resize(rows);
  std::erase_if(fitting.added_tokens,
                [&](const text::AddedToken& token) { return token.id >= arch.vocab_size; });
  vocabulary = text::make_tokenizer(std::move(fitting), where);
}

bool is_replaceable(const fs::path& file) {
  std::error_code error;
  if (!fs::is_regular_file(file, error) || fs::file_size(file, error) == 0) return true;
  try {
    if (begins_with(file, "GGUF")) return true;
    open_llama2c(file, {.tokenizer = {}, .need_tokenizer = false});
    return true;
  } catch (const Error&) {
    return false;
  }
}

std::unique_ptr<ModelFile> open_model_or_throw(const fs::path& path, const OpenOptions& options) {
  std::error_code error;
  const fs::file_status status = fs::status(path, error);
  if (!fs::exists(status))
    fail(ErrorCategory::NotFound, path.string(),
         "There is no such file or folder. A model is a folder with config.json, a *.gguf or a "
         "llama2.c *.bin.");
  if (fs::is_directory(status)) return open_hugging_face(path, options);
  if (begins_with(path, "GGUF")) return open_gguf(path, options);
  const std::string extension = path.extension().string();
  if (extension == ".gguf") return open_gguf(path, options);  // its reader reports what is wrong
  if (extension == ".bin") return open_llama2c(path, options);
  fail_unsupported(path.string(), "a folder with config.json, a *.gguf or a llama2.c *.bin",
                   extension.empty() ? "a file without an extension" : "a file " + extension);
}

}  // namespace hone::model_io
