// SPDX-License-Identifier: Apache-2.0
#include "hone/server/tools/format_cache.h"

#include <algorithm>

#include "hone/core/check.h"

namespace hone::server {
namespace {

void append_key(const std::vector<infer::OutputPart>& parts, std::string& key) {
  key += concat(parts.size(), "[");
  for (const infer::OutputPart& part : parts) {
    key += concat(static_cast<int>(part.kind), " ", part.token, " ", part.may_end,
                  part.only_at_start, part.is_strict, " ", part.text.size(), ":", part.text, " ",
                  part.label.size(), ":", part.label, ";");
  }
}

std::string key_of(const infer::OutputFormat& format) {
  std::string key = concat(format.repeats, format.choices.size());
  for (const auto* parts : {&format.before, &format.between, &format.after})
    append_key(*parts, key);
  for (const std::vector<infer::OutputPart>& choice : format.choices) append_key(choice, key);
  return key;
}

}  // namespace

FormatCache::Entry FormatCache::compile(const infer::OutputFormat& format) {
  Entry entry{.key = key_of(format)};
  const auto is_same = [&](const Entry& other) { return other.key == entry.key; };
  {
    const std::scoped_lock lock(mutex_);
    const auto found = std::ranges::find_if(entries_, is_same);
    if (found != entries_.end()) {
      entries_.splice(entries_.begin(), entries_, found);
      return entries_.front();
    }
  }
  entry.grammar = infer::compile_output(format, &entry.ignored);
  entry.bytes = infer::memory_bytes(*entry.grammar) + entry.key.size();
  const std::scoped_lock lock(mutex_);
  if (entry.bytes > capacity_ || std::ranges::any_of(entries_, is_same)) return entry;
  entries_.push_front(entry);
  bytes_ += entry.bytes;
  while (bytes_ > capacity_) {
    bytes_ -= entries_.back().bytes;
    entries_.pop_back();
  }
  return entry;
}

}  // namespace hone::server
