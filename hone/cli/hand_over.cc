// SPDX-License-Identifier: Apache-2.0
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <string_view>
#include <vector>

#include "hone/app/vision_folder.h"
#include "hone/cli/verbs.h"
#include "hone/core/check.h"

namespace hone::cli {
namespace {

namespace fs = std::filesystem;

fs::path torch_program() {
  std::error_code error;
  const fs::path self = fs::read_symlink("/proc/self/exe", error);
  return error ? fs::path() : self.parent_path() / "hone-torch";
}

// Whether this program is hone-torch.
bool has_torch() {
  return std::ranges::all_of(verb_entries(), [](const VerbEntry& entry) { return entry.add; });
}

// The first two words that are not options: command and subcommand.
std::vector<std::string_view> words_of(int argc, char** argv) {
  std::vector<std::string_view> words;
  for (int i = 1; i < argc && words.size() < 2; ++i) {
    if (argv[i][0] != '-') words.emplace_back(argv[i]);
  }
  words.resize(2);
  return words;
}

// Gains for no word, as in "hone --help": hone-torch lists more.
NeedsTorch need_of(std::span<const VerbEntry> entries, std::string_view word) {
  const auto found = std::ranges::find(entries, word, &VerbEntry::name);
  if (found != entries.end()) return found->torch;
  return word.empty() ? NeedsTorch::Gains : NeedsTorch::Never;
}

// `eval` takes models of both kinds. If only its baseline is a classifier of images, hone-torch
// refuses that.
bool names_torch_model(int argc, char** argv, bool may_be_script) {
  return std::any_of(argv + 1, argv + argc, [may_be_script](const char* word) {
    return app::is_vision_model(word) || (may_be_script && app::is_archive(word));
  });
}

// LibTorch's threads spin for milliseconds while they wait for each other, so that another program
// that uses one of their cores makes training three times as slow. With this setting they spin for
// some tens of microseconds, as hone's own threads do, then sleep. Benches measure LibTorch with
// its defaults.
void shorten_spinning() {
  constexpr const char* kSpinCount = "GOMP_SPINCOUNT";
  if (std::getenv("OMP_WAIT_POLICY") == nullptr) ::setenv(kSpinCount, "1000", /*overwrite=*/0);
}

}  // namespace

int hand_over_to_torch(int argc, char** argv) {
  if (has_torch()) return -1;
  const auto words = words_of(argc, argv);
  NeedsTorch need = need_of(verb_entries(), words[0]);
  if (words[0] == "bench") need = need_of(bench_entries(), words[1]);
  const bool needs =
      need == NeedsTorch::Always ||
      (need == NeedsTorch::ByInput && names_torch_model(argc, argv, words[0] == "serve"));
  if (!needs && need != NeedsTorch::Gains) return -1;
  const fs::path other = torch_program();
  if (!fs::exists(other)) {
    if (!needs) return -1;
    fail_unsupported(words[0],
                     "This command needs LibTorch, but hone-torch is not next to hone; run "
                     "make build to build both.");
  }
  std::error_code gone;  // MKL in LibTorch ends the process if the working folder has no name
  (void)fs::current_path(gone);
  if (gone) fail(ErrorCategory::Io, words[0], "The working folder was removed.");
  if (words[0] != "bench") shorten_spinning();
  ::execv(other.c_str(), argv);
  fail(ErrorCategory::Internal, words[0],
       concat("Could not start ", other.string(), ": ", std::strerror(errno)));
}

}  // namespace hone::cli
