// SPDX-License-Identifier: Apache-2.0
// hone_cuda_test: the CUDA kernels on a device. One JSON object per line: a test, a measurement, or
// the reason why there is nothing to do (exit status 77).
//   --gtest_filter=-Measure.*   tests only
#include <gtest/gtest.h>

#include <cstdio>
#include <nlohmann/json.hpp>

#include "hone/kernels/cuda/device_info.h"
#include "tests/kernels/cuda/device/json_report.h"

namespace hone::test {
namespace {

constexpr int kSkipped = 77;

void print_line(const nlohmann::ordered_json& line) {
  std::printf("%s\n", line.dump().c_str());
  std::fflush(stdout);
}

class JsonLines : public testing::EmptyTestEventListener {
  void OnTestEnd(const testing::TestInfo& info) override {
    const testing::TestResult& result = *info.result();
    nlohmann::ordered_json line;
    line["test"] = std::string(info.test_suite_name()) + "." + info.name();
    line["status"] = result.Failed() ? "failed" : result.Skipped() ? "skipped" : "passed";
    line["ms"] = result.elapsed_time();
    for (int i = 0; i < result.total_part_count(); ++i) {
      const testing::TestPartResult& part = result.GetTestPartResult(i);
      line["messages"].push_back(part.message());
      if (i == 9) break;
    }
    print_line(line);
  }
};

int run_tests(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  const kernels::CudaInfo info = kernels::query_cuda();
  if (info.devices.empty()) {
    print_line({{"test", "hone_cuda_test"}, {"status", "no device"}, {"reason", info.reason}});
    return kSkipped;
  }
  const kernels::CudaDevice& device = info.devices.front();
  print_line({{"device", device.name},
              {"multiprocessors", device.multiprocessors},
              {"compute_capability", device.compute_capability},
              {"driver", info.driver_version},
              {"runtime", info.runtime_version}});
  auto& listeners = testing::UnitTest::GetInstance()->listeners();
  delete listeners.Release(listeners.default_result_printer());
  listeners.Append(new JsonLines);
  return RUN_ALL_TESTS();
}

}  // namespace

void print_measure(std::string_view name, std::string_view transport,
                   std::initializer_list<std::pair<const char*, double>> numbers) {
  nlohmann::ordered_json line{{"measure", name}, {"transport", transport}};
  for (const auto& [key, value] : numbers) line[key] = value;
  print_line(line);
}

}  // namespace hone::test

int main(int argc, char** argv) { return hone::test::run_tests(argc, argv); }
