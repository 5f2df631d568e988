// SPDX-License-Identifier: Apache-2.0
#include "tests/support/peer.h"

#include <chrono>
#include <cstdlib>
#include <stdexcept>

#include "hone/core/check.h"
#include "tests/support/program.h"
#include "tests/support/test_data.h"

namespace hone::test {
namespace {

std::string peer_python() {
  const char* python = std::getenv("HONE_PEER_PYTHON");
  return python == nullptr ? "" : python;
}

}  // namespace

std::string missing_peer(std::initializer_list<std::string_view> packages) {
  const std::string python = peer_python();
  if (python.empty()) return "HONE_PEER_PYTHON is not set";
  for (const std::string_view package : packages) {
    const std::string look = concat("import importlib.util as u; exit(3 if u.find_spec('", package,
                                    "') is None else 0)");
    const ProgramResult result = Program({python, "-c", look}).wait();
    if (result.status == 3) return concat("HONE_PEER_PYTHON has no ", package);
    if (result.status != 0)
      throw std::runtime_error(concat(python, " ended with ", result.status, ": ", result.err));
  }
  return "";
}

std::string run_peer(std::string_view script, const std::vector<std::string>& arguments) {
  std::vector<std::string> argv{peer_python(), source_file(script).string()};
  argv.insert(argv.end(), arguments.begin(), arguments.end());
  // Packages may print anything; the end of a traceback has the error.
  const ProgramResult result = Program(argv).wait(std::chrono::minutes(10));
  if (result.status == 0) return result.out;
  const std::size_t tail = result.err.size() - std::min<std::size_t>(result.err.size(), 2000);
  throw std::runtime_error(concat(script, " ended with ", result.status, ": ",
                                  std::string_view(result.err).substr(tail)));
}

}  // namespace hone::test
