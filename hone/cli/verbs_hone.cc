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

#include "hone/app/vision_folder.h"
#include "hone/cli/verbs.h"
#include "hone/core/check.h"

namespace hone::cli {
namespace {

namespace fs = std::filesystem;

constexpr std::array<std::string_view, 4> kTorchVerbs{"train", "classify", "demo", "tune"};
constexpr std::array<std::string_view, 6> kTorchBenches{"optim",  "amp",    "paco",
                                                        "layers", "linalg", "attention"};

fs::path torch_program() {
  std::error_code error;
  const fs::path self = fs::read_symlink("/proc/self/exe", error);
  return error ? fs::path() : self.parent_path() / "hone-torch";
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

// `eval` takes models of both kinds. If only its baseline is a classifier of images, hone-torch
// refuses that.
bool names_vision_model(int argc, char** argv) {
  return std::any_of(argv + 1, argv + argc,
                     [](const char* word) { return app::is_vision_model(word); });
}

// LibTorch's threads spin for milliseconds while they wait for each other, so that another program
// that uses one of their cores makes training three times as slow. With this setting they spin for
// some tens of microseconds, as hone's own threads do, then sleep: 2 % slower alone, 2.4 times as
// fast with another program. Benches measure LibTorch with its defaults.
void shorten_spinning() {
  constexpr const char* kSpinCount = "GOMP_SPINCOUNT";
  if (std::getenv("OMP_WAIT_POLICY") == nullptr) ::setenv(kSpinCount, "1000", /*overwrite=*/0);
}

}  // namespace

void add_torch_verbs(CLI::App&, Context&) {}

std::span<const std::string_view> torch_verbs() { return kTorchVerbs; }

void run_vision_eval(const app::VisionEvalOptions&, Context&) {
  fail(ErrorCategory::Internal, "eval", "A classifier of images was not left to hone-torch.");
}

int hand_over_to_torch(int argc, char** argv) {
  const auto words = words_of(argc, argv);
  const auto is_one_of = [](std::string_view word, std::span<const std::string_view> names) {
    return std::ranges::find(names, word) != names.end();
  };
  const bool needs = is_one_of(words[0], kTorchVerbs) ||
                     (words[0] == "bench" && is_one_of(words[1], kTorchBenches)) ||
                     (words[0] == "eval" && names_vision_model(argc, argv));
  // These also run without LibTorch, but with fewer rows or fewer commands in the help.
  const bool gains = words[0].empty() || (words[0] == "bench" && words[1] != "llm");
  if (!needs && !gains) return -1;
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
