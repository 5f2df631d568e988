// SPDX-License-Identifier: Apache-2.0
#include "hone/app/doctor.h"

#include <fmt/format.h>

#include <filesystem>
#include <memory>

#include "hone/core/machine/machine_card.h"
#include "hone/core/version.h"
#include "hone/kernels/cuda/device_info.h"
#include "hone/kernels/roof/memory_roofs.h"

namespace hone::app {
namespace {

namespace fs = std::filesystem;

constexpr double kGiB = 1024.0 * 1024 * 1024;

Json diagnose_torch() {
  if (torch_version().empty()) return {};
  std::error_code error;
  const fs::path program = fs::read_symlink("/proc/self/exe", error).parent_path() / "hone-torch";
  const bool is_there = !error && fs::exists(program, error);
  return {{"version", torch_version()}, {"program", is_there ? Json(program.string()) : Json()}};
}

// "13.0" for 13000; null if unknown.
Json version_of(int number) {
  if (number <= 0) return {};
  return fmt::format("{}.{}", number / 1000, number % 1000 / 10);
}

double measure_copy(int device, Measurer& measurer) {
  const std::shared_ptr<kernels::CudaCopy> copy =
      kernels::make_cuda_copy(device, std::int64_t{1} << 30);
  const Contestant contestants[] = {{.name = "device copy", .run = [copy] { copy->run(); }}};
  const Measurement measurement = measurer.measure(contestants, {.max_seconds = 2});
  return static_cast<double>(copy->bytes_moved()) / measurer.spread(measurement.seconds[0]).median *
         1e-9;
}

Json diagnose_cuda(Measurer& measurer, bool measure) {
  const kernels::CudaInfo info = kernels::query_cuda();
  Json devices = Json::array();
  for (std::size_t i = 0; i < info.devices.size(); ++i) {
    const kernels::CudaDevice& device = info.devices[i];
    devices.push_back(
        {{"name", device.name},
         {"memory_bytes", device.memory_bytes},
         {"multiprocessors", device.multiprocessors},
         {"compute_capability", device.compute_capability / 10.0},
         {"copy_gb_per_s", measure ? Json(measure_copy(static_cast<int>(i), measurer)) : Json()}});
  }
  return {{"built", info.is_built},
          {"driver", version_of(info.driver_version)},
          {"runtime", version_of(info.runtime_version)},
          {"reason", info.reason.empty() ? Json() : Json(info.reason)},
          {"devices", devices}};
}

std::string rate_text(const Json& rate, const char* unit) {
  if (rate.is_null()) return "not measured (--measure)";
  return fmt::format("{:.1f} {}", rate.get<double>(), unit);
}

std::string torch_text(const Json& torch) {
  if (torch.is_null()) return "none (built without LibTorch)";
  const std::string version = torch["version"].get<std::string>();
  if (torch["program"].is_null()) return version + ", but hone-torch is not next to hone";
  return version + ", " + torch["program"].get<std::string>();
}

std::string cuda_text(const Json& cuda) {
  std::string text;
  for (const Json& device : cuda["devices"]) {
    text += fmt::format(
        "{}{}, {:.0f} GiB, {} multiprocessors, compute {:.1f}, copy {}", text.empty() ? "" : "; ",
        device["name"].get<std::string>(), device["memory_bytes"].get<double>() / kGiB,
        device["multiprocessors"].get<int>(), device["compute_capability"].get<double>(),
        rate_text(device["copy_gb_per_s"], "GB/s"));
  }
  return text.empty() ? cuda["reason"].get<std::string>() : text;
}

std::string join(const Json& words) {
  std::string text;
  for (const Json& word : words) text += (text.empty() ? "" : " ") + word.get<std::string>();
  return text;
}

}  // namespace

Json diagnose(Executor& executor, Measurer& measurer, bool measure) {
  Json result = machine_card(executor);
  Json read, copy, peak;
  if (measure) {
    const kernels::MemoryRoofs roofs = kernels::measure_memory_roofs(executor, measurer, false);
    read = roofs.read_gb_per_s;
    copy = roofs.copy_gb_per_s;
    peak = kernels::measure_peak_gflops(executor, measurer, false);
  }
  result["memory_gb_per_s"] = read;
  result["memory_copy_gb_per_s"] = copy;
  result["peak_gflops"] = peak;
  result["torch"] = diagnose_torch();
  result["cuda"] = diagnose_cuda(measurer, measure);
  return result;
}

std::string describe_diagnosis(const Json& diagnosis) {
  const Json& quota = diagnosis["quota"];
  const auto line = [](const char* name, const std::string& value) {
    return fmt::format("{:<13}{}\n", name, value);
  };
  return line("cpu", diagnosis["cpu"].get<std::string>()) + line("isa", join(diagnosis["isa"])) +
         line(
             "cores",
             fmt::format("{} ({} usable, {} threads, {})", diagnosis["cores"].get<int>(),
                         diagnosis["usable_cores"].get<int>(), diagnosis["threads"].get<int>(),
                         quota.is_null() ? std::string("no quota")
                                         : fmt::format("quota {:.2f} CPUs", quota.get<double>()))) +
         line("memory", fmt::format("{:.1f} GiB available",
                                    diagnosis["available_memory_bytes"].get<double>() / kGiB)) +
         line("memory read", rate_text(diagnosis["memory_gb_per_s"], "GB/s")) +
         line("memory copy", rate_text(diagnosis["memory_copy_gb_per_s"], "GB/s")) +
         line("peak f32", rate_text(diagnosis["peak_gflops"], "GFLOP/s")) +
         line("torch", torch_text(diagnosis["torch"])) +
         line("cuda", cuda_text(diagnosis["cuda"])) +
         line("system", diagnosis["system"].get<std::string>()) +
         line("hone", diagnosis["hone"].get<std::string>());
}

}  // namespace hone::app
