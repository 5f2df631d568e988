// SPDX-License-Identifier: Apache-2.0
#include "hone/text/unicode/splitter.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>
#include <time.h>

#include <algorithm>
#include <array>
#include <cstdint>

#include "hone/core/check.h"
#include "hone/text/unicode/utf8.h"

namespace hone::text {
namespace {

// A greedy run followed by a failing alternative backtracks one character per step, so a text of n
// spaces takes about n steps in one match. Twenty million exceed every text that a model can take.
constexpr std::uint32_t kMatchLimit = 20'000'000;
constexpr std::uint32_t kDepthLimit = 20'000'000;  // heap frames, which kHeapLimitKib also bounds
constexpr std::uint32_t kHeapLimitKib = 256 * 1024;
// Compiled code runs repeated assertions without counting towards the match limit: 40 of "(?=a)*"
// would never end. Real splitters have one or two.
constexpr int kMaxCompiledAssertions = 4;

constexpr std::string_view kWordInside = R"(\p{Alphabetic}\p{M}\p{Nd}\p{Pc}\x{200C}\x{200D})";

struct FreeCode {
  void operator()(pcre2_code* code) const { pcre2_code_free(code); }
};
struct FreeContext {
  void operator()(pcre2_match_context* context) const { pcre2_match_context_free(context); }
};
struct FreeMatch {
  void operator()(pcre2_match_data* data) const { pcre2_match_data_free(data); }
};

std::string message_of(int code) {
  std::array<PCRE2_UCHAR, 160> text{};
  pcre2_get_error_message(code, text.data(), text.size());
  return reinterpret_cast<const char*>(text.data());
}

// Appends the translation of one escape to `out`; escapes other than \s, \S, \w and \W are copied.
void append_escape(std::string& out, char letter, bool in_class, std::string_view where) {
  switch (letter) {
    case 's':
      out += R"(\p{White_Space})";
      return;
    case 'S':
      out += R"(\P{White_Space})";
      return;
    case 'w':
      out += in_class ? std::string(kWordInside) : concat("[", kWordInside, "]");
      return;
    case 'W':
      if (in_class) fail_unsupported(where, "A splitter with \\W inside [ ] is not supported.");
      out += concat("[^", kWordInside, "]");
      return;
    default:
      out += {'\\', letter};
  }
}

// An upper bound on the number of "(?=", "(?!", "(?<=", "(?<!" and "(*pla:".
int count_assertions(std::string_view pattern) {
  int count = 0;
  for (const std::string_view head : {"(?=", "(?!", "(?<", "(*"}) {
    for (auto at = pattern.find(head); at != pattern.npos; at = pattern.find(head, at + 1)) ++count;
  }
  return count;
}

}  // namespace

std::string to_pcre2_pattern(std::string_view pattern, std::string_view where) {
  std::string out;
  bool in_class = false;
  for (std::size_t i = 0; i < pattern.size(); ++i) {
    const char c = pattern[i];
    if (c == '\\' && i + 1 < pattern.size()) {
      append_escape(out, pattern[++i], in_class, where);
      continue;
    }
    if (in_class && (c == '[' || pattern.substr(i, 2) == "&&")) {
      fail_unsupported(where,
                       concat("A splitter with a nested set or && inside [ ] is not supported: ",
                              pattern.substr(0, 200)));
    }
    if (c == '[' && !in_class) {
      in_class = true;
      out += c;
      // "^" and then "]" right after the bracket are part of the class's head.
      if (pattern.substr(i + 1, 1) == "^") out += pattern[++i];
      if (pattern.substr(i + 1, 1) == "]") out += concat("\\", pattern[++i]);
      continue;
    }
    if (c == ']') in_class = false;
    out += c;
  }
  return out;
}

struct Splitter::Compiled {
  std::unique_ptr<pcre2_code, FreeCode> code;
  std::unique_ptr<pcre2_match_context, FreeContext> context;
};

Splitter::Splitter(std::string_view pattern, std::string_view where)
    : compiled_(std::make_unique<Compiled>()) {
  const std::string translated = to_pcre2_pattern(pattern, where);
  int problem = 0;
  PCRE2_SIZE offset = 0;
  compiled_->code.reset(
      pcre2_compile(reinterpret_cast<PCRE2_SPTR>(translated.data()), translated.size(),
                    PCRE2_UTF | PCRE2_UCP | PCRE2_NEVER_BACKSLASH_C | PCRE2_USE_OFFSET_LIMIT,
                    &problem, &offset, nullptr));
  if (!compiled_->code) {
    fail_unsupported(where, concat("PCRE2 cannot compile the splitter \"", pattern.substr(0, 200),
                                   "\": ", message_of(problem)));
  }
  // If just-in-time compilation fails, as on hardened kernels, the interpreter runs.
  if (count_assertions(translated) <= kMaxCompiledAssertions) {
    pcre2_jit_compile(compiled_->code.get(), PCRE2_JIT_COMPLETE);
  }
  compiled_->context.reset(pcre2_match_context_create(nullptr));
  if (!compiled_->context)
    fail(ErrorCategory::Resource, where, "There is no memory for a splitter.");
  pcre2_set_match_limit(compiled_->context.get(), kMatchLimit);
  pcre2_set_depth_limit(compiled_->context.get(), kDepthLimit);
  pcre2_set_heap_limit(compiled_->context.get(), kHeapLimitKib);
}

Splitter::Splitter(Splitter&&) noexcept = default;
Splitter& Splitter::operator=(Splitter&&) noexcept = default;
Splitter::~Splitter() = default;

namespace {

// The processor time that a text may take. The limits above hold for each position at which a match
// is sought, so that a pattern which comes near them everywhere would take hours.
class Budget {
 public:
  explicit Budget(std::size_t bytes) : end_(now() + 2.0 + 2e-6 * static_cast<double>(bytes)) {}

  void check() {
    if (++calls_ % 16 == 0 && now() > end_) {
      fail(ErrorCategory::Resource, "tokenizer",
           "The splitter exceeds its limits on this text: it takes more than 2 us for each byte.");
    }
  }

 private:
  static double now() {
    timespec time{};
    ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
    return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
  }
  double end_;
  int calls_ = 0;
};

// The positions at which one call seeks a match, so that the budget is checked between calls.
constexpr std::size_t kStarts = 64;

std::size_t next_character(std::string_view text, std::size_t at) {
  while (at < text.size() && (static_cast<std::uint8_t>(text[at]) & 0xC0u) == 0x80u) ++at;
  return at;
}

// Splits text that is valid UTF-8.
void split_valid(const pcre2_code* code, pcre2_match_context* context, pcre2_match_data* data,
                 std::string_view text, FunctionRef<void(std::string_view)> part) {
  const auto subject = reinterpret_cast<PCRE2_SPTR>(text.data());
  std::unique_ptr<pcre2_match_context, FreeContext> limited;  // others use `context`, too
  if (text.size() > kStarts) limited.reset(pcre2_match_context_copy(context));
  if (limited) context = limited.get();
  Budget budget(text.size());
  std::size_t done = 0, from = 0;  // of the text; of the search
  while (done < text.size()) {
    budget.check();
    if (limited) pcre2_set_offset_limit(context, from + kStarts);
    constexpr std::uint32_t kOptions = PCRE2_NO_UTF_CHECK | PCRE2_NOTEMPTY;
    int found = pcre2_match(code, subject, text.size(), from, kOptions, data, context);
    if (found == PCRE2_ERROR_JIT_STACKLIMIT) {
      found = pcre2_match(code, subject, text.size(), from, kOptions | PCRE2_NO_JIT, data, context);
    }
    if (found == PCRE2_ERROR_NOMATCH) {
      from = limited ? next_character(text, from + kStarts + 1) : text.size();
      if (from >= text.size()) break;
      continue;
    }
    if (found < 0) {
      fail(ErrorCategory::Resource, "tokenizer",
           concat("The splitter exceeds its limits on this text: ", message_of(found)));
    }
    const PCRE2_SIZE* ends = pcre2_get_ovector_pointer(data);
    // \K can move the start of a match past its end or before the start of the search.
    const std::size_t begin = std::max(ends[0], done), end = ends[1];
    if (end <= begin) fail_unsupported("tokenizer", "A splitter with \\K is not supported.");
    if (begin > done) part(text.substr(done, begin - done));
    part(text.substr(begin, end - begin));
    done = from = end;
  }
  if (done < text.size()) part(text.substr(done));
}

}  // namespace

void Splitter::split(std::string_view text, FunctionRef<void(std::string_view)> part) const {
  const std::unique_ptr<pcre2_match_data, FreeMatch> data(
      pcre2_match_data_create_from_pattern(compiled_->code.get(), nullptr));
  if (!data) fail(ErrorCategory::Resource, "tokenizer", "There is no memory for a match.");
  while (!text.empty()) {
    const std::size_t valid = valid_utf8_prefix(text);
    split_valid(compiled_->code.get(), compiled_->context.get(), data.get(), text.substr(0, valid),
                part);
    text.remove_prefix(valid);
    std::size_t invalid = 0;
    while (invalid < text.size() && decode_utf8(text.substr(invalid, 4)).bytes == 0) ++invalid;
    if (invalid > 0) part(text.substr(0, invalid));
    text.remove_prefix(invalid);
  }
}

bool is_word_character(std::string_view utf8_character) {
  static const Splitter splitter(R"(\w)", "word character");
  // U+E000 is not a word character, so the first part is the whole text unless \w matched.
  std::size_t first = 0;
  splitter.split(concat(utf8_character, "\xEE\x80\x80"), [&](std::string_view part) {
    if (first == 0) first = part.size();
  });
  return first == utf8_character.size();
}

}  // namespace hone::text
