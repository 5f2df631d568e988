// SPDX-License-Identifier: Apache-2.0
#include "hone/infer/output_format.h"

#include "hone/infer/grammar/json_schema.h"

namespace hone::infer {

std::shared_ptr<const grammar::JsonSchema> compile_output(const OutputFormat& format,
                                                          std::vector<std::string>* ignored) {
  return grammar::JsonSchema::compile(format, ignored);
}

std::size_t memory_bytes(const grammar::JsonSchema& compiled) { return compiled.memory_bytes(); }

}  // namespace hone::infer
