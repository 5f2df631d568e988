// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "hone/core/index.h"
#include "hone/data/story_grammar.h"

namespace hone::data {

// Documents for training and held-out documents. All are valid UTF-8 and not empty.
struct TextCorpus {
  std::string name;  // "tinyshakespeare.txt", "stories"
  std::vector<std::string> train, held_out;

  Index train_bytes() const;
  Index held_out_bytes() const;
};

// Whether a path names the built-in stories: "stories", unless something has that name.
bool names_stories(const std::filesystem::path& path);

// Loads the built-in stories, a text file, a JSON-lines file (.jsonl, .ndjson; the string field
// "text" of each line) or a folder of text files (.txt, .text, .md; recursive, sorted by path,
// without names that begin with a dot). A byte-order mark is dropped. Every tenth document is held
// out; if there are fewer than ten, the last tenth of each by bytes, cut after a line end if that
// tenth has one. Throws Error{NotFound} if `path` does not exist, Error{CorruptFile} that names the
// file and the byte or line for invalid UTF-8, malformed JSON, a missing field, or no text at all.
TextCorpus load_text(const std::filesystem::path& path);

// Reads one text file and drops a byte-order mark. Throws Error{CorruptFile} that names the file
// and the offset of the first byte that is not valid UTF-8.
std::string read_utf8_file(const std::filesystem::path& path);

// Splits texts in memory in the same way.
TextCorpus split_documents(std::string name, std::vector<std::string> documents);

// Where the held-out part of a single text begins: after the first line end in the last tenth, or
// at the first character boundary there.
Index held_out_begin(std::string_view text);

struct StoryCounts {
  Index train = 20000, held_out = 1000;
};
// Built-in stories, one document each, which end with kStorySeparator. They are the same on every
// machine; held-out stories come from a separate series.
TextCorpus generate_story_corpus(const StoryGrammar& grammar, std::uint64_t seed,
                                 const StoryCounts& counts = {});

// Concatenates the documents.
std::string join_documents(const std::vector<std::string>& documents);

}  // namespace hone::data
