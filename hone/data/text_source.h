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

// Documents to learn from and documents kept back. All are well-formed UTF-8 and not empty.
struct TextCorpus {
  std::string name;  // "tinyshakespeare.txt", "stories"
  std::vector<std::string> train, held_out;

  Index train_bytes() const;
  Index held_out_bytes() const;
};

// A text file, a JSON-lines file (.jsonl, .ndjson; the string field "text" of each line) or a
// folder of text files (.txt, .text, .md; below it too, sorted by path, names that begin with a dot
// left out). A byte-order mark is dropped. Held out: every tenth file or record; of a single text,
// and of each document where there are fewer than ten, the last tenth by bytes, cut after a line
// end where that tenth has one. Error{NotFound} when `path` is absent, Error{CorruptFile} naming
// the file and the byte (or line) for invalid UTF-8, malformed JSON, a missing field or no text at
// all.
TextCorpus load_text(const std::filesystem::path& path);

// One text file, a byte-order mark dropped. Error{CorruptFile} naming the file and the offset of
// the first byte that is no UTF-8.
std::string read_utf8_file(const std::filesystem::path& path);

// The same split of texts that are already in memory.
TextCorpus split_documents(std::string name, std::vector<std::string> documents);

// Where the held-out part of a single text begins: after the first line end in the last tenth, else
// at the first character border there.
Index held_out_begin(std::string_view text);

struct StoryCounts {
  Index train = 20000, held_out = 1000;
};
// Built-in stories, one document each, every one ended by kStorySeparator. The same for every
// machine; held-out stories come from a series of their own.
TextCorpus generate_story_corpus(const StoryGrammar& grammar, std::uint64_t seed,
                                 const StoryCounts& counts = {});

// Documents one after the other, as they are.
std::string join_documents(const std::vector<std::string>& documents);

}  // namespace hone::data
