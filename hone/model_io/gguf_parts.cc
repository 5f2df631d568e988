// SPDX-License-Identifier: Apache-2.0
#include "hone/model_io/gguf_parts.h"

#include <algorithm>

#include "hone/core/check.h"
#include "hone/core/names.h"

namespace hone::model_io {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kNumber = "split.no", kCount = "split.count",
                           kTensors = "split.tensors.count", kArchitecture = "general.architecture";
constexpr Index kMostParts = 65'535;  // the key is a u16
constexpr std::size_t kDigits = 5;

std::string five_digits(Index number) {
  const std::string digits = concat(number);
  return std::string(kDigits - std::min(kDigits, digits.size()), '0') + digits;
}

// "-00001-of-00003.gguf"; `number` counts from 0.
std::string ending_of(Index number, Index count) {
  return concat("-", five_digits(number + 1), "-of-", five_digits(count), ".gguf");
}

Index required_integer(const GgufPart& part, std::string_view key) {
  const auto value = part.file.integer(key);
  if (!value) fail_corrupt(part.where, concat("There is no key ", key, ", which every part has."));
  return *value;
}

// Without the tensors' data.
GgufPart map_part(const fs::path& path, std::vector<MmapFile>& mappings) {
  GgufPart part;
  part.where = path.string();
  part.bytes = mappings.emplace_back(path).bytes();
  part.file = parse_gguf(part.bytes, part.where);
  return part;
}

// What every part must say.
struct Split {
  std::string stem;  // the name without its ending
  Index count = 1, tensors = 0;
  std::string architecture;
};

Split read_split(const GgufPart& named, const fs::path& path) {
  Split split;
  split.count = required_integer(named, kCount);
  if (split.count > kMostParts)
    fail_corrupt(named.where, concat(kCount, " of at most ", kMostParts), concat(split.count));
  const Index number = required_integer(named, kNumber);
  if (number < 0 || number >= split.count)
    fail_corrupt(named.where, concat(kNumber, " of 0 to ", split.count - 1), concat(number));
  split.tensors = required_integer(named, kTensors);
  const std::string name = path.filename().string(), ending = ending_of(number, split.count);
  if (!name.ends_with(ending) || name.size() == ending.size())
    fail_corrupt(named.where, concat("a name that ends in ", ending, ", as its keys say"),
                 quote_name(name));
  split.stem = name.substr(0, name.size() - ending.size());
  return split;
}

void check_part(const GgufPart& part, const Split& split, Index number) {
  const auto expect = [&](std::string_view key, Index wanted) {
    const Index got = required_integer(part, key);
    if (got != wanted) fail_corrupt(part.where, concat(key, " of ", wanted), concat(got));
  };
  expect(kNumber, number);
  expect(kCount, split.count);
  expect(kTensors, split.tensors);
  const auto architecture = part.file.string(kArchitecture);
  if (architecture && *architecture != split.architecture)
    fail_corrupt(part.where,
                 concat("the architecture ", quote_name(split.architecture), " of the first part"),
                 quote_name(*architecture));
}

void check_tensors(const std::vector<GgufPart>& parts, Index wanted) {
  struct Place {
    std::string_view name;
    std::size_t part;
  };
  std::vector<Place> places;
  for (std::size_t i = 0; i < parts.size(); ++i) {
    for (const GgufTensor& tensor : parts[i].file.tensors()) places.push_back({tensor.name, i});
  }
  const auto name = [&](Index i) { return places[static_cast<std::size_t>(i)].name; };
  const Index twice = find_duplicate(static_cast<Index>(places.size()), name);
  if (twice >= 0)
    fail_corrupt(parts[places[static_cast<std::size_t>(twice)].part].where,
                 concat("Tensor ", quote_name(name(twice)), " is also in another part."));
  if (static_cast<Index>(places.size()) != wanted)
    fail_corrupt(parts.front().where,
                 concat(wanted, " tensors in ", parts.size(), " parts (", kTensors, ")"),
                 concat(places.size()));
}

}  // namespace

std::vector<GgufPart> map_gguf_parts(const fs::path& path, std::vector<MmapFile>& mappings) {
  std::vector<GgufPart> parts;
  GgufPart named = map_part(path, mappings);
  if (named.file.integer(kCount).value_or(1) <= 1) {
    parts.push_back(std::move(named));
    return parts;
  }
  Split split = read_split(named, path);
  const Index named_number = required_integer(named, kNumber);
  for (Index i = 0; i < split.count; ++i) {
    if (i == named_number) {
      parts.push_back(std::move(named));
    } else {
      const fs::path other = path.parent_path() / (split.stem + ending_of(i, split.count));
      std::error_code error;
      if (!fs::exists(other, error))
        fail(ErrorCategory::NotFound, other.string(),
             concat("There is no such file, which is part ", i + 1, " of the ", split.count,
                    " parts of this model."));
      parts.push_back(map_part(other, mappings));
    }
    if (i == 0) split.architecture = parts[0].file.string(kArchitecture).value_or("");
    check_part(parts.back(), split, i);
  }
  check_tensors(parts, split.tensors);
  return parts;
}

}  // namespace hone::model_io
