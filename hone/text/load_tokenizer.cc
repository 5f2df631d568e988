// SPDX-License-Identifier: Apache-2.0
#include "hone/text/load_tokenizer.h"

#include <algorithm>
#include <array>
#include <vector>

#include "hone/core/check.h"
#include "hone/core/file/file_io.h"
#include "hone/core/file/json_io.h"
#include "hone/core/file/mmap_file.h"
#include "hone/text/format/sentencepiece_model.h"
#include "hone/text/format/tok_bin.h"
#include "hone/text/format/tokenizer_json.h"

namespace hone::text {
namespace {

namespace fs = std::filesystem;

constexpr Index kMaxConfigBytes = Index{1} << 28;
constexpr std::string_view kVocab = "vocab.json", kMerges = "merges.txt";
// In the order in which they are looked for.
constexpr std::array<std::string_view, 4> kFiles = {"tokenizer.json", "tokenizer.model", kVocab,
                                                    "tokenizer.bin"};
constexpr std::array<std::string_view, 2> kConfigs = {"special_tokens_map.json",
                                                      "tokenizer_config.json"};

// Older models have special_tokens_map.json; tokenizer_config.json takes precedence.
void apply_configs(Vocabulary& vocabulary, const fs::path& folder) {
  for (const std::string_view name : kConfigs) {
    const fs::path path = folder / name;
    if (!fs::is_regular_file(path)) continue;
    apply_tokenizer_config(vocabulary, read_json_file(path), path.string());
  }
}

std::shared_ptr<const Tokenizer> finish(Vocabulary vocabulary, const fs::path& path) {
  apply_configs(vocabulary, path.parent_path());
  return make_tokenizer(std::move(vocabulary), path.string());
}

// "gpt2_vocab.json" belongs with "gpt2_merges.txt".
std::shared_ptr<const Tokenizer> load_vocab_and_merges(const fs::path& path) {
  const std::string name = path.filename().string();
  const std::string_view ending = path.extension() == ".json" ? kVocab : kMerges;
  if (!name.ends_with(ending)) {
    fail_unsupported(path.string(), "a file named tokenizer.json, …vocab.json or …merges.txt",
                     name);
  }
  const std::string prefix = name.substr(0, name.size() - ending.size());
  const fs::path folder = path.parent_path();
  const Json vocab = read_json_file(folder / concat(prefix, kVocab));
  const std::string merges = read_text_file(folder / concat(prefix, kMerges), kMaxConfigBytes);
  return finish(read_vocab_and_merges(vocab, merges, path.string()), path);
}

std::shared_ptr<const Tokenizer> load_json(const fs::path& path) {
  const Json json = read_json_file(path);
  if (!json.is_object()) fail_corrupt(path.string(), "a JSON object", json.type_name());
  if (json.contains("model") && json["model"].is_object()) {
    return finish(read_tokenizer_json(json, path.string()), path);
  }
  if (!path.filename().string().ends_with("vocab.json")) {
    fail_corrupt(path.string(), "There is no \"model\" object.");
  }
  return load_vocab_and_merges(path);
}

std::shared_ptr<const Tokenizer> load_sentencepiece(const fs::path& path) {
  const MmapFile file(path);
  SentencePieceModel model = read_sentencepiece_model(file.bytes(), path.string());
  apply_configs(model.vocabulary, path.parent_path());
  const auto tokenizer = make_tokenizer(model.vocabulary, path.string());
  run_self_test(model, *tokenizer, path.string());
  return tokenizer;
}

std::shared_ptr<const Tokenizer> load_tok_bin(const fs::path& path) {
  const MmapFile file(path);
  return make_tokenizer(read_tok_bin(file.bytes(), path.string()), path.string());
}

}  // namespace

std::vector<fs::path> list_tok_bins(const fs::path& folder) {
  std::vector<fs::path> files;
  std::error_code ignored;
  for (const auto& entry : fs::directory_iterator(folder, ignored)) {
    const std::string name = entry.path().filename().string();
    if (name.starts_with("tok") && entry.path().extension() == ".bin") {
      files.push_back(entry.path());
    }
  }
  std::sort(files.begin(), files.end());
  return files;
}

fs::path find_tokenizer_file(const fs::path& folder) {
  for (const std::string_view name : kFiles) {
    if (fs::is_regular_file(folder / name) &&
        (name != kVocab || fs::is_regular_file(folder / kMerges))) {
      return folder / name;
    }
  }
  const std::vector<fs::path> candidates = list_tok_bins(folder);
  return candidates.empty() ? fs::path() : candidates.front();
}

std::vector<fs::path> list_tokenizer_files(const fs::path& path) {
  std::error_code ignored;
  const bool is_folder = fs::is_directory(path, ignored);
  const fs::path folder = is_folder ? path : fs::absolute(path, ignored).parent_path();
  std::vector<fs::path> files;
  if (is_folder) files = list_tok_bins(folder);
  for (const auto& entry : fs::directory_iterator(folder, ignored)) {
    const std::string name = entry.path().filename().string();
    const bool is_named = std::ranges::find(kFiles, name) != kFiles.end() ||
                          std::ranges::find(kConfigs, name) != kConfigs.end() ||
                          name.ends_with(kVocab) || name.ends_with(kMerges);
    const bool is_path = !is_folder && name == path.filename();
    if (is_named || is_path) files.push_back(entry.path());
  }
  std::ranges::sort(files);
  return files;
}

std::shared_ptr<const Tokenizer> load_tokenizer_or_throw(const fs::path& path) {
  std::error_code error;
  if (fs::is_directory(path, error)) {
    const fs::path file = find_tokenizer_file(path);
    if (file.empty()) {
      fail(ErrorCategory::NotFound, path.string(),
           "This folder has no tokenizer.json, tokenizer.model, vocab.json with merges.txt, or "
           "tok*.bin.");
    }
    return load_tokenizer_or_throw(file);
  }
  if (!fs::exists(path, error))
    fail(ErrorCategory::NotFound, path.string(), "There is no such tokenizer file.");
  const std::string extension = path.extension().string();
  if (extension == ".json") return load_json(path);
  if (extension == ".txt") return load_vocab_and_merges(path);
  if (extension == ".model") return load_sentencepiece(path);
  if (extension == ".bin") return load_tok_bin(path);
  fail_unsupported(path.string(), "a tokenizer file named .json, .txt, .model or .bin",
                   concat("\"", extension, "\""));
}

}  // namespace hone::text
