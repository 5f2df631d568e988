// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <span>
#include <string>

#include "hone/core/philox.h"
#include "tests/support/resident_memory.h"
#include "tests/support/test_data.h"

namespace hone::test {

using Mutator = std::function<void(std::string&, PhiloxStream&)>;

// The factor of limits of time in programs that sanitizers make slower.
inline constexpr double kSlowdown = kCountsMemory ? 1 : 20;

inline std::size_t draw_below(PhiloxStream& random, std::size_t below) {
  return random.below(static_cast<std::uint32_t>(below));
}

// Flips, overwrites by numbers that break arithmetic, cuts, repeats.
void mutate_binary(std::string& bytes, PhiloxStream& random);
// The same, in the first `head` bytes only: where a container keeps what it promises.
Mutator mutate_head(std::size_t head);
void mutate_json(std::string& text, PhiloxStream& random);
// Copies, drops, exchanges and renames values of a JSON text, which stays one. Another text is
// mutated by mutate_json().
void mutate_json_tree(std::string& text, PhiloxStream& random);
// Mutates the JSON header of a safetensors file; keeps the length word true three times out of
// four.
void mutate_safetensors(std::string& file, PhiloxStream& random);

struct Outcome {
  int opened = 0, refused = 0;
};

struct MutationRules {
  int runs = 10'000;
  bool seed_opens = true;
  bool are_refused = true;  // whether at least a tenth must be
  bool is_text = false;     // whether failures show the mutation
  double processor_s = 0;   // the most of one mutation; 0: no limit but that of hangs
  std::int64_t bytes = std::int64_t{16} << 20;  // the most memory beyond 4 x the file
};

// Mutates `seed` 10,000 times, and on until $HONE_FUZZ_SECONDS have passed if that is set, and
// hands each to `open`; anything but success or hone::Error fails, and so does more memory of
// operator new than 4 x the file and 16 MiB. The mutations differ by $HONE_FUZZ_SEED. `open` takes
// the seed itself, unless seed_opens is false.
Outcome run_mutations(const std::string& seed, const Mutator& mutate,
                      const std::function<void(const std::string&)>& open, bool seed_opens = true);
// The same with other limits.
Outcome run_mutations(const std::string& seed, const Mutator& mutate,
                      const std::function<void(const std::string&)>& open,
                      const MutationRules& rules);

// $HONE_FUZZ_SEED, and when $HONE_FUZZ_SECONDS from now have passed.
std::uint64_t fuzz_seed();
std::chrono::steady_clock::time_point fuzz_end();

// A folder in memory where the system has a place for that: 70,000 files are written.
TemporaryFolder make_memory_folder();

// Without the fsync of write_text_file, which would take most of the time of a run.
void write_plainly(const std::filesystem::path& path, const std::string& bytes);

inline std::span<const std::byte> as_bytes(const std::string& text) {
  return std::as_bytes(std::span(text));
}

}  // namespace hone::test
