// SPDX-License-Identifier: Apache-2.0
#include <dlfcn.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <filesystem>
#include <string>

namespace hone {
namespace {

namespace fs = std::filesystem;

std::string library_of(const void* address) {
  Dl_info info{};
  return ::dladdr(address, &info) != 0 && info.dli_fname != nullptr ? info.dli_fname : "none";
}

// LibTorch's libraries export functions of the libstdc++ that they were built with. Those of
// LibTorch 2.11 for CUDA call a null pointer.
TEST(LinkedLibraries, functions_of_the_standard_library_are_not_those_inside_libtorch) {
  using Remove = std::uintmax_t (*)(const fs::path&);
  using Create = bool (*)(const fs::path&);
  for (const std::string& library :
       {library_of(reinterpret_cast<const void*>(static_cast<Remove>(fs::remove_all))),
        library_of(reinterpret_cast<const void*>(static_cast<Create>(fs::create_directory)))}) {
    EXPECT_THAT(library, testing::Not(testing::HasSubstr("/libtorch"))) << library;
    EXPECT_NE(library, "none");
  }
}

}  // namespace
}  // namespace hone
