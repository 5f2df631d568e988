// SPDX-License-Identifier: Apache-2.0
// Where the CUDA step waits for its device: counted in the source, so on machines without one too.
#include <gtest/gtest.h>

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "hone/core/file/file_io.h"
#include "tests/support/test_data.h"

namespace hone::kernels::cuda {
namespace {

// Calls that return when the device is done; copies without Async are among them.
constexpr std::string_view kWaits[] = {
    "cudaDeviceSynchronize", "cudaStreamSynchronize", "cudaEventSynchronize", "cudaMemcpy(",
    "cudaMemcpy2D(",         "cudaMemset(",           "cudaMemcpyToSymbol(",  "cudaStreamQuery",
    "cudaEventQuery",        "cudaMemcpyFromSymbol("};

TEST(CudaStep, the_host_waits_in_read_report_and_nowhere_in_a_step) {
  int waits = 0, files = 0;
  for (const auto& entry : std::filesystem::directory_iterator(
           hone::test::source_file("hone/kernels/multi_tensor/cuda"))) {
    const std::string text = read_text_file(entry.path());
    ++files;
    for (const std::string_view call : kWaits) {
      for (std::size_t at = text.find(call); at != std::string::npos;
           at = text.find(call, at + 1)) {
        if (text[at + call.size()] == ' ') continue;  // in the sentence of an error
        ++waits;
        const std::size_t body = text.rfind("\n}\n", at);
        EXPECT_LT(body, text.find("StepReport StepperCore::read_report(Stream stream) {"))
            << entry.path() << ": " << text.substr(at, 60);
        EXPECT_GT(at, text.find("StepReport StepperCore::read_report(Stream stream) {"));
      }
    }
  }
  EXPECT_EQ(waits, 1);
  EXPECT_GE(files, 10) << "the sources were found";
}

}  // namespace
}  // namespace hone::kernels::cuda
