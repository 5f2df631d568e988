// SPDX-License-Identifier: Apache-2.0
#include "hone/cli/verbs.h"

#include <array>

namespace hone::cli {

void add_bench(CLI::App& program, Context& context);
void add_chat(CLI::App& program, Context& context);
void add_compress(CLI::App& program, Context& context);
void add_convert(CLI::App& program, Context& context);
void add_doctor(CLI::App& program, Context& context);
void add_eval(CLI::App& program, Context& context);
void add_generate(CLI::App& program, Context& context);
void add_inspect(CLI::App& program, Context& context);
void add_serve(CLI::App& program, Context& context);
void add_tokenize(CLI::App& program, Context& context);
void add_bench_gemm(CLI::App& bench, Context& context);
void add_bench_llm(CLI::App& bench, Context& context);
void add_bench_serve(CLI::App& bench, Context& context);
// Files of cli/torch are linked into hone-torch alone; in `hone` these addresses are null.
[[gnu::weak]] void add_classify(CLI::App& program, Context& context);
[[gnu::weak]] void add_demo(CLI::App& program, Context& context);
[[gnu::weak]] void add_optimize(CLI::App& program, Context& context);
[[gnu::weak]] void add_train(CLI::App& program, Context& context);
[[gnu::weak]] void add_tune(CLI::App& program, Context& context);
[[gnu::weak]] void add_bench_amp(CLI::App& bench, Context& context);
[[gnu::weak]] void add_bench_attention(CLI::App& bench, Context& context);
[[gnu::weak]] void add_bench_dynamic(CLI::App& bench, Context& context);
[[gnu::weak]] void add_bench_layers(CLI::App& bench, Context& context);
[[gnu::weak]] void add_bench_linalg(CLI::App& bench, Context& context);
[[gnu::weak]] void add_bench_optim(CLI::App& bench, Context& context);
[[gnu::weak]] void add_bench_paco(CLI::App& bench, Context& context);

std::span<const VerbEntry> verb_entries() {
  using enum NeedsTorch;
  static const auto entries = std::to_array<VerbEntry>({{"demo", Always, add_demo},
                                                        {"train", Always, add_train},
                                                        {"classify", Always, add_classify},
                                                        {"tune", Always, add_tune},
                                                        {"compress", ByInput, add_compress},
                                                        {"optimize", Always, add_optimize},
                                                        {"generate", Never, add_generate},
                                                        {"chat", Never, add_chat},
                                                        {"serve", ByInput, add_serve},
                                                        {"eval", ByInput, add_eval},
                                                        {"convert", Never, add_convert},
                                                        {"inspect", Never, add_inspect},
                                                        {"tokenize", Never, add_tokenize},
                                                        {"bench", Gains, add_bench},
                                                        {"doctor", Never, add_doctor}});
  return entries;
}

std::span<const VerbEntry> bench_entries() {
  using enum NeedsTorch;
  static const auto entries =
      std::to_array<VerbEntry>({{"gemm", Gains, add_bench_gemm},
                                {"llm", Never, add_bench_llm},
                                {"serve", Never, add_bench_serve},
                                {"optim", Always, add_bench_optim},
                                {"amp", Always, add_bench_amp},
                                {"paco", Always, add_bench_paco},
                                {"layers", Always, add_bench_layers},
                                {"linalg", Always, add_bench_linalg},
                                {"dynamic", Always, add_bench_dynamic},
                                {"attention", Always, add_bench_attention}});
  return entries;
}

void add_entries(CLI::App& parent, Context& context, std::span<const VerbEntry> entries) {
  for (const VerbEntry& entry : entries) {
    if (entry.add != nullptr) entry.add(parent, context);
  }
}

}  // namespace hone::cli
