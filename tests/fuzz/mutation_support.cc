// SPDX-License-Identifier: Apache-2.0
#include "tests/fuzz/mutation_support.h"

#include <gtest/gtest.h>
#include <malloc.h>
#include <time.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <new>
#include <stdexcept>
#include <string_view>
#include <utility>
#include <vector>

#include "hone/core/check.h"
#include "hone/core/file/json_io.h"

namespace {

std::atomic<std::int64_t> live_bytes{0}, peak_bytes{0};

void* allocate(std::size_t size, std::size_t alignment) {
  void* memory = alignment > alignof(std::max_align_t)
                     ? std::aligned_alloc(alignment, (size + alignment - 1) / alignment * alignment)
                     : std::malloc(size);
  if (memory == nullptr) throw std::bad_alloc();
  const auto usable = static_cast<std::int64_t>(malloc_usable_size(memory));
  const std::int64_t live = live_bytes += usable;
  std::int64_t peak = peak_bytes;
  while (live > peak && !peak_bytes.compare_exchange_weak(peak, live)) {
  }
  return memory;
}

void release(void* memory) {
  if (memory != nullptr) live_bytes -= static_cast<std::int64_t>(malloc_usable_size(memory));
  std::free(memory);
}

}  // namespace

void* operator new(std::size_t size) { return allocate(size, 0); }
void* operator new[](std::size_t size) { return allocate(size, 0); }
void* operator new(std::size_t size, std::align_val_t alignment) {
  return allocate(size, static_cast<std::size_t>(alignment));
}
void* operator new[](std::size_t size, std::align_val_t alignment) {
  return allocate(size, static_cast<std::size_t>(alignment));
}
void* operator new(std::size_t size, const std::nothrow_t&) noexcept { return allocate(size, 0); }
void* operator new[](std::size_t size, const std::nothrow_t&) noexcept { return allocate(size, 0); }
void operator delete(void* memory) noexcept { release(memory); }
void operator delete[](void* memory) noexcept { release(memory); }
void operator delete(void* memory, std::size_t) noexcept { release(memory); }
void operator delete[](void* memory, std::size_t) noexcept { release(memory); }
void operator delete(void* memory, std::align_val_t) noexcept { release(memory); }
void operator delete[](void* memory, std::align_val_t) noexcept { release(memory); }
void operator delete(void* memory, std::size_t, std::align_val_t) noexcept { release(memory); }
void operator delete[](void* memory, std::size_t, std::align_val_t) noexcept { release(memory); }

namespace hone::test {
namespace {

constexpr double kHangSeconds = 20;  // a sanitizer on a loaded machine is far below

std::uint64_t environment_number(const char* name) {
  const char* text = std::getenv(name);
  return text == nullptr ? 0 : std::strtoull(text, nullptr, 10);
}

// What this thread has taken.
double processor_seconds() {
  timespec now{};
  ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

std::size_t pick(PhiloxStream& random, std::size_t below) { return draw_below(random, below); }

// Sizes, counts and ids that break arithmetic.
std::uint64_t nasty_number(PhiloxStream& random) {
  constexpr std::array<std::uint64_t, 18> kNumbers{
      0,          1,          2,          3,          31,         33,
      64,         255,        65'535,     65'536,     1u << 31,   (1u << 31) - 1,
      0xffffffff, 1ull << 32, 1ull << 61, 1ull << 62, 1ull << 63, ~0ull};
  const std::uint64_t number = kNumbers[pick(random, kNumbers.size())];
  return pick(random, 4) == 0 ? number + pick(random, 64) - 32 : number;
}

void flip_bytes(std::string& bytes, PhiloxStream& random) {
  for (std::size_t n = 1 + pick(random, 4); n > 0 && !bytes.empty(); --n)
    bytes[pick(random, bytes.size())] = static_cast<char>(pick(random, 256));
}

// Replaces 1, 2, 4 or 8 bytes by a nasty number.
void overwrite_number(std::string& bytes, PhiloxStream& random) {
  const std::size_t width = std::size_t{1} << pick(random, 4);
  if (bytes.size() < width) return;
  const std::uint64_t number = nasty_number(random);
  std::memcpy(bytes.data() + pick(random, bytes.size() - width + 1), &number, width);
}

// Cuts, repeats, moves or drops a part.
void splice(std::string& bytes, PhiloxStream& random) {
  if (bytes.empty()) return;
  const std::size_t from = pick(random, bytes.size());
  const std::size_t length = std::min(bytes.size() - from, pick(random, 64) + 1);
  const std::string part = bytes.substr(from, length);
  switch (pick(random, 4)) {
    case 0:
      bytes.resize(from);
      break;
    case 1:
      bytes.erase(from, length);
      break;
    case 2:
      bytes.insert(pick(random, bytes.size() + 1), part);
      break;
    default:
      bytes.append(part);
  }
}

// Positions of runs that match `is_part`: numbers, strings.
std::vector<std::pair<std::size_t, std::size_t>> find_numbers(const std::string& text) {
  std::vector<std::pair<std::size_t, std::size_t>> found;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] < '0' || text[i] > '9') continue;
    const std::size_t begin = i;
    while (i < text.size() && text[i] >= '0' && text[i] <= '9') ++i;
    found.emplace_back(begin, i - begin);
  }
  return found;
}

std::string nasty_token(PhiloxStream& random) {
  static const std::array<std::string, 16> kTokens{
      "null", "true",  "-1",  "1e999", "0.5",      "\"\"", "[]", "{}",
      "[[",   "\"\\u", "{\"", "\xff",  "\"a\":1,", ",",    ":",  "\"\\ud800\""};
  if (pick(random, 2) == 0) return kTokens[pick(random, kTokens.size())];
  return concat(nasty_number(random));
}

Json nasty_value(PhiloxStream& random) {
  static const std::array<Json, 20> kValues = {nullptr,
                                               true,
                                               false,
                                               0,
                                               1,
                                               -1,
                                               5,
                                               0.01,
                                               0.5,
                                               -1e300,
                                               2'147'483'647,
                                               2'147'483'648,
                                               18'446'744'073'709'551'615u,
                                               "",
                                               "a",
                                               "\u00e9\U0001f600",
                                               "\\\"\n",
                                               "^[^a]+$",
                                               Json::array(),
                                               Json::object()};
  return kValues[pick(random, kValues.size())];
}

void collect_nodes(Json& json, std::vector<Json*>& nodes, std::vector<std::string>& keys) {
  nodes.push_back(&json);
  if (json.is_object()) {
    for (const auto& [key, value] : json.items()) keys.push_back(key);
  }
  if (!json.is_structured()) return;
  for (Json& child : json) collect_nodes(child, nodes, keys);
}

std::string random_key_of(const Json& object, PhiloxStream& random) {
  auto member = object.begin();
  for (std::size_t left = pick(random, object.size()); left > 0; --left) ++member;
  return member.key();
}

// Drops, copies or exchanges elements.
void edit_array(Json& array, const Json& other, PhiloxStream& random) {
  const std::size_t at = pick(random, array.size() + 1);
  const std::size_t kind = pick(random, 4);
  if (kind == 0 || array.empty()) {
    array.insert(array.begin() + static_cast<std::ptrdiff_t>(at), other);
  } else if (kind == 1) {
    array.erase(pick(random, array.size()));
  } else if (kind == 2) {
    const Json copy = array[pick(random, array.size())];
    array.insert(array.begin() + static_cast<std::ptrdiff_t>(at), copy);
  } else {
    std::swap(array[pick(random, array.size())], array[pick(random, array.size())]);
  }
}

// Drops, adds or renames members.
void edit_object(Json& object, const Json& other, const std::string& key, PhiloxStream& random) {
  const std::size_t kind = pick(random, 3);
  if (kind == 0 || object.empty()) {
    object[key] = other;
    return;
  }
  const std::string old = random_key_of(object, random);
  const Json value = object[old];
  object.erase(old);
  if (kind == 1) object[key] = value;
}

}  // namespace

void mutate_binary(std::string& bytes, PhiloxStream& random) {
  for (std::size_t n = 1 + pick(random, 3); n > 0; --n) {
    const std::size_t kind = pick(random, 5);
    if (kind < 2) {
      overwrite_number(bytes, random);
    } else if (kind < 4) {
      flip_bytes(bytes, random);
    } else {
      splice(bytes, random);
    }
  }
}

Mutator mutate_head(std::size_t head) {
  return [head](std::string& bytes, PhiloxStream& random) {
    std::string front = bytes.substr(0, head);
    const std::string rest = bytes.substr(front.size());
    mutate_binary(front, random);
    bytes = front + rest;
    if (pick(random, 8) == 0) splice(bytes, random);
  };
}

void mutate_json(std::string& text, PhiloxStream& random) {
  for (std::size_t n = 1 + pick(random, 3); n > 0; --n) {
    const auto numbers = find_numbers(text);
    if (!numbers.empty() && pick(random, 2) == 0) {
      const auto [begin, length] = numbers[pick(random, numbers.size())];
      text.replace(begin, length, nasty_token(random));
    } else if (pick(random, 3) == 0) {
      text.insert(pick(random, text.size() + 1), nasty_token(random));
    } else {
      splice(text, random);
    }
  }
}

void mutate_json_tree(std::string& text, PhiloxStream& random) {
  Json root = Json::parse(text, nullptr, false);
  if (root.is_discarded()) return mutate_json(text, random);
  for (std::size_t n = 1 + pick(random, 3); n > 0; --n) {
    std::vector<Json*> nodes;
    std::vector<std::string> keys = {"type"};
    collect_nodes(root, nodes, keys);
    Json& node = *nodes[pick(random, nodes.size())];
    const Json other = *nodes[pick(random, nodes.size())];
    const std::size_t kind = pick(random, 4);
    if (kind == 0) {
      node = other;
    } else if (kind == 1) {
      node = nasty_value(random);
    } else if (node.is_array()) {
      edit_array(node, other, random);
    } else if (node.is_object()) {
      edit_object(node, other, keys[pick(random, keys.size())], random);
    }
  }
  text = root.dump(-1, ' ', false, Json::error_handler_t::replace);
}

void mutate_safetensors(std::string& file, PhiloxStream& random) {
  if (pick(random, 5) == 0 || file.size() < 8) return mutate_binary(file, random);
  std::uint64_t length = 0;
  std::memcpy(&length, file.data(), sizeof length);
  std::string header = file.substr(8, length);
  const std::string data = file.substr(8 + header.size());
  mutate_json(header, random);
  length = pick(random, 4) == 0 ? nasty_number(random) : header.size();
  file.assign(reinterpret_cast<const char*>(&length), sizeof length);
  file += header + data;
  if (pick(random, 8) == 0) splice(file, random);
}

std::uint64_t fuzz_seed() { return environment_number("HONE_FUZZ_SEED"); }

std::chrono::steady_clock::time_point fuzz_end() {
  return std::chrono::steady_clock::now() +
         std::chrono::seconds(environment_number("HONE_FUZZ_SECONDS"));
}

Outcome run_mutations(const std::string& seed, const Mutator& mutate,
                      const std::function<void(const std::string&)>& open, bool seed_opens) {
  return run_mutations(seed, mutate, open, MutationRules{.seed_opens = seed_opens});
}

Outcome run_mutations(const std::string& seed, const Mutator& mutate,
                      const std::function<void(const std::string&)>& open,
                      const MutationRules& rules) {
  Outcome outcome;
  if (rules.seed_opens) {
    EXPECT_NO_THROW(open(seed)) << "the seed itself";
  }
  PhiloxStream random(20'261'121 + fuzz_seed());
  const auto end = fuzz_end();
  for (int run = 0; run < rules.runs || std::chrono::steady_clock::now() < end; ++run) {
    std::string file = seed;
    mutate(file, random);
    const std::string shown = concat("run ", run, rules.is_text ? ": " + file : std::string());
    const std::int64_t before = live_bytes;
    peak_bytes = before;
    const auto begin = std::chrono::steady_clock::now();
    const double processor_begin = processor_seconds();
    try {
      open(file);
      ++outcome.opened;
    } catch (const Error& error) {
      ++outcome.refused;
      EXPECT_EQ(std::string_view(error.what()).find('\n'), std::string_view::npos) << error.what();
    } catch (const std::exception& error) {
      ADD_FAILURE() << shown << ": " << error.what();
    }
    const double processor_taken = processor_seconds() - processor_begin;
    const std::chrono::duration<double> taken = std::chrono::steady_clock::now() - begin;
    EXPECT_LT(taken.count(), kHangSeconds) << shown;
    if (rules.processor_s > 0) {
      EXPECT_LE(processor_taken, rules.processor_s) << shown;
    }
    EXPECT_LE(peak_bytes - before, 4 * static_cast<std::int64_t>(file.size()) + rules.bytes)
        << shown;
    if (testing::Test::HasFailure()) {
      ADD_FAILURE() << "in " << shown;
      break;
    }
  }
  if (rules.are_refused) {
    EXPECT_GT(outcome.refused, rules.runs / 10);  // the mutators hurt
  }
  testing::Test::RecordProperty("opened", outcome.opened);
  testing::Test::RecordProperty("refused", outcome.refused);
  std::printf("%d opened, %d refused\n", outcome.opened, outcome.refused);
  return outcome;
}

TemporaryFolder make_memory_folder() {
  if (std::filesystem::is_directory("/dev/shm")) ::setenv("TMPDIR", "/dev/shm", 1);
  return TemporaryFolder();
}

void write_plainly(const std::filesystem::path& path, const std::string& bytes) {
  std::FILE* file = std::fopen(path.c_str(), "wb");
  if (file == nullptr) throw std::runtime_error("cannot write " + path.string());
  std::fwrite(bytes.data(), 1, bytes.size(), file);
  std::fclose(file);
}

}  // namespace hone::test
