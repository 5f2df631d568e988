// SPDX-License-Identifier: Apache-2.0
// 10,000 seeded mutations of every kind of untrusted file, in process: each opens or throws one
// hone::Error, within bounded memory and time. Run it in a build with
// HONE_SANITIZE=address,undefined to see stray reads too.
#include <gtest/gtest.h>
#include <malloc.h>

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <functional>
#include <new>

#include "hone/core/check.h"
#include "hone/core/file_io.h"
#include "hone/core/gguf.h"
#include "hone/core/log.h"
#include "hone/core/safetensors.h"
#include "hone/text/format/sentencepiece_model.h"
#include "hone/text/format/tok_bin.h"
#include "hone/text/format/tokenizer_json.h"
#include "tests/model_io/tiny_model.h"
#include "tests/support/test_data.h"

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
void operator delete(void* memory) noexcept { release(memory); }
void operator delete[](void* memory) noexcept { release(memory); }
void operator delete(void* memory, std::size_t) noexcept { release(memory); }
void operator delete[](void* memory, std::size_t) noexcept { release(memory); }
void operator delete(void* memory, std::align_val_t) noexcept { release(memory); }
void operator delete[](void* memory, std::align_val_t) noexcept { release(memory); }
void operator delete(void* memory, std::size_t, std::align_val_t) noexcept { release(memory); }
void operator delete[](void* memory, std::size_t, std::align_val_t) noexcept { release(memory); }

namespace hone {
namespace {

namespace fs = std::filesystem;
using model_io::open_model_or_throw;
using test::TinyModel;

constexpr int kRuns = 10'000;
constexpr double kHangSeconds = 20;  // a sanitizer on a loaded machine is far below

std::span<const std::byte> as_bytes(const std::string& text) {
  return std::as_bytes(std::span(text));
}

// ---- mutators -----------------------------------------------------------------------------------

using Mutator = std::function<void(std::string&, PhiloxStream&)>;

std::size_t pick(PhiloxStream& random, std::size_t below) {
  return random.below(static_cast<std::uint32_t>(below));
}

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

// The same, in the first `head` bytes only: where a container keeps what it promises.
Mutator mutate_head(std::size_t head) {
  return [head](std::string& bytes, PhiloxStream& random) {
    std::string front = bytes.substr(0, head);
    const std::string rest = bytes.substr(front.size());
    mutate_binary(front, random);
    bytes = front + rest;
    if (pick(random, 8) == 0) splice(bytes, random);
  };
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

// Mutates the JSON header of a safetensors file; keeps the length word true three times out of
// four.
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

// ---- driver -------------------------------------------------------------------------------------

struct Outcome {
  int opened = 0, refused = 0;
};

// Mutates `seed` kRuns times and hands each to `open`; anything but success or hone::Error fails.
Outcome run_mutations(const std::string& seed, const Mutator& mutate,
                      const std::function<void(const std::string&)>& open) {
  Outcome outcome;
  PhiloxStream random(20'261'121);
  for (int run = 0; run < kRuns; ++run) {
    std::string file = seed;
    mutate(file, random);
    const std::int64_t before = live_bytes;
    peak_bytes = before;
    const auto begin = std::chrono::steady_clock::now();
    try {
      open(file);
      ++outcome.opened;
    } catch (const Error& error) {
      ++outcome.refused;
      EXPECT_EQ(std::string_view(error.what()).find('\n'), std::string_view::npos) << error.what();
    } catch (const std::exception& error) {
      ADD_FAILURE() << "run " << run << ": " << error.what();
    }
    const std::chrono::duration<double> taken = std::chrono::steady_clock::now() - begin;
    EXPECT_LT(taken.count(), kHangSeconds) << "run " << run;
    EXPECT_LE(peak_bytes - before,
              4 * static_cast<std::int64_t>(file.size()) + (std::int64_t{16} << 20))
        << "run " << run;
    if (testing::Test::HasFailure()) break;
  }
  EXPECT_GT(outcome.refused, kRuns / 10);  // the mutators hurt
  testing::Test::RecordProperty("opened", outcome.opened);
  testing::Test::RecordProperty("refused", outcome.refused);
  return outcome;
}

// Opens a model whose file `path` is replaced by each mutation.
std::function<void(const std::string&)> opener(const fs::path& path, const fs::path& model) {
  return [=](const std::string& bytes) {
    // Plain writing: an fsync per run would take most of the time.
    std::FILE* file = std::fopen(path.c_str(), "wb");
    if (file == nullptr) throw std::runtime_error("cannot write " + path.string());
    std::fwrite(bytes.data(), 1, bytes.size(), file);
    std::fclose(file);
    open_model_or_throw(model, {.tokenizer = {}, .need_tokenizer = false});
  };
}

// Files live in memory where the system has a place for that: 70,000 are written.
test::TemporaryFolder make_folder() {
  if (fs::is_directory("/dev/shm")) ::setenv("TMPDIR", "/dev/shm", 1);
  return test::TemporaryFolder();
}

class Mutation : public testing::Test {
 protected:
  Mutation() : folder_(make_folder()), model_(test::tiny_architecture()) {
    set_log_level(LogLevel::Error);  // an unserved tokeniser is only a warning when none is needed
  }
  const fs::path& folder() const { return folder_.path(); }

  test::TemporaryFolder folder_;
  TinyModel model_;
};

TEST_F(Mutation, safetensors_header) {
  write_hugging_face(folder() / "hf", model_.source());
  const std::string seed = read_text_file(folder() / "hf/model.safetensors");
  run_mutations(seed, mutate_safetensors,
                [](const std::string& file) { parse_safetensors(as_bytes(file), "fuzz"); });
}

TEST_F(Mutation, hugging_face_weights) {
  write_hugging_face(folder() / "hf", model_.source());
  const fs::path path = folder() / "hf/model.safetensors";
  run_mutations(read_text_file(path), mutate_safetensors, opener(path, folder() / "hf"));
}

TEST_F(Mutation, packed_artefact) {
  write_artefact(folder() / "q", model_.source(), model_io::StoreType::Q4_0);
  const fs::path path = folder() / "q/model.safetensors";
  run_mutations(read_text_file(path), mutate_safetensors, opener(path, folder() / "q"));
}

TEST_F(Mutation, hugging_face_config) {
  write_hugging_face(folder() / "hf", model_.source());
  const fs::path path = folder() / "hf/config.json";
  run_mutations(read_text_file(path), mutate_json, opener(path, folder() / "hf"));
}

TEST_F(Mutation, gguf) {
  const auto tokenizer = text::make_tokenizer(test::tiny_sentencepiece(48));
  write_gguf(folder() / "m.gguf", model_.source(tokenizer.get()), model_io::StoreType::Q8_0);
  const std::string seed = read_text_file(folder() / "m.gguf");
  const std::size_t head = 4096;  // keys, vocabulary and tensor descriptions
  ASSERT_GT(seed.size(), 2 * head);
  run_mutations(seed, mutate_head(head), opener(folder() / "m.gguf", folder() / "m.gguf"));
}

TEST_F(Mutation, gguf_vocabulary_of_gpt_2) {
  HONE_REQUIRE_TEST_DATA(path, "tokenizers/ggml-vocab-gpt-2.gguf");
  const std::string whole = read_text_file(path);
  // 1.7 MB are mostly pieces; parsing is what is under test, building the tokeniser is not.
  run_mutations(whole, mutate_head(2048), [](const std::string& file) {
    const GgufFile gguf = parse_gguf(as_bytes(file), "fuzz");
    gguf.strings("tokenizer.ggml.tokens");
    gguf.integers("tokenizer.ggml.token_type");
  });
}

TEST_F(Mutation, llama2c) {
  model_io::Architecture a = test::tiny_architecture();
  a.head_dim = a.rope.rotary_dims = 8;
  const TinyModel model(a);
  const fs::path path = folder() / "m.bin";
  write_llama2c(path, model.source());
  const std::string seed = read_text_file(path);
  run_mutations(seed, mutate_head(28), opener(path, path));
  std::string modern(256, '\0');
  const std::array<std::int32_t, 2> front{0x616b3432, 2};
  std::memcpy(modern.data(), front.data(), sizeof front);
  std::memcpy(modern.data() + 8, seed.data(), 28);
  modern[36] = 1;
  modern[37] = 16;
  run_mutations(modern + seed.substr(28), mutate_head(48), opener(path, path));
}

TEST_F(Mutation, tokenizer_json) {
  const auto vocabulary = test::tiny_sentencepiece(48);
  const std::string seed = text::to_tokenizer_json(vocabulary).dump();
  run_mutations(seed, mutate_json, [](const std::string& file) {
    text::make_tokenizer(text::read_tokenizer_json(parse_json(file, "fuzz"), "fuzz"), "fuzz");
  });
}

TEST_F(Mutation, tok_bin) {
  HONE_REQUIRE_TEST_DATA(path, "lm/tok512.bin");
  run_mutations(read_text_file(path), mutate_binary, [](const std::string& file) {
    text::make_tokenizer(text::read_tok_bin(as_bytes(file), "fuzz"), "fuzz");
  });
}

TEST_F(Mutation, sentencepiece_model) {
  HONE_REQUIRE_TEST_DATA(path, "lm/tok512.model");
  run_mutations(read_text_file(path), mutate_binary, [](const std::string& file) {
    text::SentencePieceModel model = text::read_sentencepiece_model(as_bytes(file), "fuzz");
    text::run_self_test(model, *text::make_tokenizer(model.vocabulary, "fuzz"), "fuzz");
  });
}

}  // namespace
}  // namespace hone
