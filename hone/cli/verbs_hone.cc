// SPDX-License-Identifier: Apache-2.0
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <string_view>
#include <vector>

#include "hone/cli/verbs.h"
#include "hone/core/check.h"

namespace hone::cli {
namespace {

namespace fs = std::filesystem;

constexpr std::array<std::string_view, 3> kTorchVerbs{"train", "classify", "demo"};

fs::path torch_program() {
  std::error_code error;
  const fs::path self = fs::read_symlink("/proc/self/exe", error);
  return error ? fs::path() : self.parent_path() / "hone-torch";
}

// The first two words that are no options: verb and sub-verb.
std::vector<std::string_view> words_of(int argc, char** argv) {
  std::vector<std::string_view> words;
  for (int i = 1; i < argc && words.size() < 2; ++i) {
    if (argv[i][0] != '-') words.emplace_back(argv[i]);
  }
  words.resize(2);
  return words;
}

// LibTorch's threads spin for milliseconds where they wait for each other: a program beside them
// that takes a core in turn makes training three times as slow. This long they spin for some tens
// of microseconds, as hone's own do, then sleep: alone 2 % slower, beside others 2.4 times as fast.
// Benches measure LibTorch as it comes.
void shorten_spinning() {
  constexpr const char* kSpinCount = "GOMP_SPINCOUNT";
  if (std::getenv("OMP_WAIT_POLICY") == nullptr) ::setenv(kSpinCount, "1000", /*overwrite=*/0);
}

}  // namespace

void add_torch_verbs(CLI::App&, Context&) {}

std::span<const std::string_view> torch_verbs() { return kTorchVerbs; }

int hand_over_to_torch(int argc, char** argv) {
  const auto words = words_of(argc, argv);
  const bool needs = std::ranges::find(kTorchVerbs, words[0]) != kTorchVerbs.end() ||
                     (words[0] == "bench" && words[1] == "optim");
  // These run without LibTorch too, with fewer rows, or list fewer verbs.
  const bool gains = words[0].empty() || (words[0] == "bench" && words[1] != "llm");
  if (!needs && !gains) return -1;
  const fs::path other = torch_program();
  if (!fs::exists(other)) {
    if (!needs) return -1;
    fail_unsupported(words[0], "a build with LibTorch (hone-torch beside hone)", "a build without");
  }
  std::error_code gone;  // LibTorch's MKL ends the process when it cannot name the working folder
  (void)fs::current_path(gone);
  if (gone) fail(ErrorCategory::Io, words[0], "a working folder", "one that was removed");
  if (words[0] != "bench") shorten_spinning();
  ::execv(other.c_str(), argv);
  fail(ErrorCategory::Internal, words[0], concat("to start ", other.string()),
       std::strerror(errno));
}

}  // namespace hone::cli
