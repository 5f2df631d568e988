// SPDX-License-Identifier: Apache-2.0
#include "hone/data/text_source.h"

#include <algorithm>
#include <cctype>
#include <utility>

#include "hone/core/check.h"
#include "hone/core/file/file_io.h"
#include "hone/core/file/json_io.h"
#include "hone/core/log.h"
#include "hone/data/hold_out.h"
#include "hone/text/unicode/utf8.h"

namespace hone::data {
namespace {

namespace fs = std::filesystem;

std::string lower_extension(const fs::path& path) {
  std::string extension = path.extension().string();
  std::transform(extension.begin(), extension.end(), extension.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return extension;
}

std::vector<std::string> read_json_lines(const fs::path& path) {
  const std::string content = read_utf8_file(path);
  std::vector<std::string> documents;
  std::string_view rest = content;
  for (Index line = 1; !rest.empty(); ++line) {
    const auto end = std::min(rest.find('\n'), rest.size());
    const std::string_view record = rest.substr(0, end);
    rest.remove_prefix(std::min(end + 1, rest.size()));
    if (record.find_first_not_of(" \t\r") == std::string_view::npos) continue;
    const std::string where = concat(path.string(), " line ", line);
    const Json json = parse_json(record, where);
    const auto text = json.is_object() ? json.find("text") : json.end();
    if (!json.is_object() || text == json.end() || !text->is_string()) {
      fail_corrupt(where, "an object with a string field \"text\"", json.type_name());
    }
    if (auto value = text->get<std::string>(); !value.empty()) {
      documents.push_back(std::move(value));
    }
  }
  return documents;
}

std::vector<fs::path> list_text_files(const fs::path& folder) {
  std::vector<fs::path> files;
  Index others = 0;
  std::error_code error;
  fs::recursive_directory_iterator entries(folder, error);
  for (; !error && entries != fs::recursive_directory_iterator(); entries.increment(error)) {
    const fs::path& path = entries->path();
    if (path.filename().string().starts_with('.')) {
      entries.disable_recursion_pending();
      continue;
    }
    const std::string extension = lower_extension(path);
    const bool is_text = extension == ".txt" || extension == ".text" || extension == ".md";
    if (!entries->is_regular_file()) continue;
    is_text ? files.push_back(path) : static_cast<void>(++others);
  }
  if (error) {
    fail(ErrorCategory::NotFound, folder.string(),
         concat("Could not read the folder: ", error.message()));
  }
  if (others > 0) {
    log_warning(concat(folder.string(), ": ", others, others == 1 ? " file is" : " files are",
                       " skipped because the name does not match *.txt, *.text or *.md"));
  }
  std::sort(files.begin(), files.end());
  return files;
}

std::vector<std::string> read_documents(const fs::path& path) {
  if (fs::is_directory(path)) {
    std::vector<std::string> documents;
    for (const fs::path& file : list_text_files(path)) {
      if (std::string text = read_utf8_file(file); !text.empty())
        documents.push_back(std::move(text));
    }
    return documents;
  }
  const std::string extension = lower_extension(path);
  if (extension == ".jsonl" || extension == ".ndjson") return read_json_lines(path);
  std::string text = read_utf8_file(path);
  if (text.empty()) return {};
  return {std::move(text)};
}

Index total_bytes(const std::vector<std::string>& documents) {
  Index bytes = 0;
  for (const std::string& document : documents) bytes += static_cast<Index>(document.size());
  return bytes;
}

}  // namespace

std::string read_utf8_file(const fs::path& path) {
  std::string text = read_text_file(path);
  const std::size_t valid = text::valid_utf8_prefix(text);
  if (valid < text.size()) {
    const unsigned byte = static_cast<unsigned char>(text[valid]);
    fail_corrupt(path.string(), "UTF-8 text", concat("byte ", byte, " at offset ", valid));
  }
  if (text.starts_with("\xEF\xBB\xBF")) text.erase(0, 3);
  return text;
}

Index TextCorpus::train_bytes() const { return total_bytes(train); }
Index TextCorpus::held_out_bytes() const { return total_bytes(held_out); }

Index held_out_begin(std::string_view text) {
  std::size_t begin = text.size() - text.size() / kHoldOutEvery;
  const auto line_end = text.find('\n', begin);
  if (line_end != std::string_view::npos && line_end + 1 < text.size()) {
    return static_cast<Index>(line_end + 1);
  }
  while (begin < text.size() && (static_cast<unsigned char>(text[begin]) & 0xc0u) == 0x80u) ++begin;
  return static_cast<Index>(begin);
}

TextCorpus split_documents(std::string name, std::vector<std::string> documents) {
  TextCorpus corpus;
  corpus.name = std::move(name);
  const bool split_each = documents.size() < kHoldOutEvery;
  for (std::size_t i = 0; i < documents.size(); ++i) {
    if (split_each) {
      const auto begin = static_cast<std::size_t>(held_out_begin(documents[i]));
      if (begin < documents[i].size()) corpus.held_out.push_back(documents[i].substr(begin));
      documents[i].resize(begin);
    }
    const bool hold_out = !split_each && i % kHoldOutEvery == kHoldOutEvery - 1;
    if (!documents[i].empty()) {
      (hold_out ? corpus.held_out : corpus.train).push_back(std::move(documents[i]));
    }
  }
  return corpus;
}

bool names_stories(const std::filesystem::path& path) {
  std::error_code error;
  return path == "stories" && !fs::exists(path, error);
}

TextCorpus load_text(const std::filesystem::path& path) {
  if (names_stories(path)) return generate_story_corpus(StoryGrammar(), 0);
  std::error_code error;
  if (!fs::exists(path, error)) {
    fail(ErrorCategory::NotFound, path.string(), "There is no such text file or folder.");
  }
  std::vector<std::string> documents = read_documents(path);
  if (documents.empty()) fail_corrupt(path.string(), "There is no text.");
  return split_documents(path.filename().string(), std::move(documents));
}

TextCorpus generate_story_corpus(const StoryGrammar& grammar, std::uint64_t seed,
                                 const StoryCounts& counts) {
  TextCorpus corpus;
  corpus.name = "stories";
  const auto fill = [&](std::vector<std::string>& documents, StorySeries series, Index count) {
    documents.reserve(static_cast<std::size_t>(count));
    for (Index i = 0; i < count; ++i) {
      documents.push_back(generate_story(grammar, seed, series, i));
      documents.back() += kStorySeparator;
    }
  };
  fill(corpus.train, StorySeries::Train, counts.train);
  fill(corpus.held_out, StorySeries::HeldOut, counts.held_out);
  return corpus;
}

std::string join_documents(const std::vector<std::string>& documents) {
  std::string text;
  text.reserve(static_cast<std::size_t>(total_bytes(documents)));
  for (const std::string& document : documents) text += document;
  return text;
}

}  // namespace hone::data
