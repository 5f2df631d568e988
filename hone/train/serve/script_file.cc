// SPDX-License-Identifier: Apache-2.0
#include "hone/train/serve/script_file.h"

#include <torch/csrc/jit/serialization/import.h>

#include <array>
#include <fstream>
#include <string_view>
#include <system_error>

#include "hone/core/check.h"

namespace hone::nn {
namespace {

// TorchScript files are ZIP archives.
void check_archive(const std::string& file) {
  std::ifstream stream(file, std::ios::binary);
  std::array<char, 2> magic{};
  stream.read(magic.data(), magic.size());
  if (!stream || magic != std::array{'P', 'K'}) {
    fail_corrupt(file, "a TorchScript file", "another one");
  }
}

}  // namespace

torch::jit::Module load_script(const std::filesystem::path& file) {
  const std::string where = file.string();
  std::error_code ignored;
  if (!std::filesystem::exists(file, ignored)) {
    fail(ErrorCategory::NotFound, where, "a TorchScript file", "nothing");
  }
  check_archive(where);
  try {
    torch::jit::Module module = torch::jit::load(where);
    module.eval();
    return module;
  } catch (const std::exception&) {
    fail_corrupt(where, "a TorchScript file", "an archive that LibTorch cannot read as one");
  }
}

std::string script_problem(const std::exception& error) {
  const auto* const own = dynamic_cast<const c10::Error*>(&error);
  std::string text = own != nullptr ? own->what_without_backtrace() : error.what();
  while (!text.empty() && (text.back() == '\n' || text.back() == ' ')) text.pop_back();
  const bool is_in_script = text.find("TorchScript interpreter") != std::string::npos;
  const std::size_t last = text.rfind('\n');
  const std::string line = is_in_script && last != std::string::npos
                               ? text.substr(last + 1)
                               : text.substr(0, text.find('\n'));
  if (line.empty()) return "an error without a message";
  return line.size() <= 200 ? line : line.substr(0, 200) + "...";
}

}  // namespace hone::nn
