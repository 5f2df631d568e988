// SPDX-License-Identifier: Apache-2.0
#include "hone/cli/weight_options.h"

#include <cstdlib>

#include "hone/cli/validators.h"

namespace hone::cli {

infer::WeightOptions WeightChoice::options() const {
  const char* cache = std::getenv("HONE_PACK_CACHE");
  return {.format = format == "q8"   ? infer::WeightFormat::Q8
                    : format == "q4" ? infer::WeightFormat::Q4
                                     : infer::WeightFormat::File,
          .pack_cache = pack_cache.empty() && cache != nullptr ? cache : pack_cache};
}

void add_weight_options(CLI::App& verb, WeightChoice& choice) {
  verb.add_option("--weights", choice.format,
                  "Type of the weight matrices in memory: file (as stored), q8 or q4 (f32, f16 and "
                  "bf16 matrices are quantized while loading, as hone convert does)")
      ->check(CLI::IsMember({"file", "q8", "q4"}))
      ->capture_default_str();
  verb.add_option("--pack-cache", choice.pack_cache,
                  "FOLDER that keeps packed weights; later starts map them into memory")
      ->check(not_empty());
}

}  // namespace hone::cli
