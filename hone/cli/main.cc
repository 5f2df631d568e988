// SPDX-License-Identifier: Apache-2.0
#include <csignal>
#include <cstdio>
#include <exception>
#include <new>
#include <string>

#include "hone/cli/command.h"
#include "hone/cli/verbs.h"
#include "hone/core/check.h"
#include "hone/core/cpu_info.h"
#include "hone/core/log.h"
#include "hone/core/thread_pool.h"
#include "hone/core/version.h"

namespace hone::cli {

Executor& Context::executor() {
  static ThreadPool pool(common.threads);
  return pool;
}

void Context::finish(const Json& document, const std::function<void()>& print) {
  if (common.json) {
    const std::string text = document.dump(2, ' ', false, Json::error_handler_t::replace);
    std::fprintf(stdout, "%s\n", text.c_str());
  } else {
    print();
  }
  if (std::fflush(stdout) != 0 || std::ferror(stdout) != 0)
    fail(ErrorCategory::Io, "stdout", "to write the result", "an error");
}

namespace {

void add_common_options(CLI::App& verb, CommonOptions& common) {
  verb.add_flag("--json", common.json, "Print exactly one JSON document on stdout")
      ->envname("HONE_JSON");
  verb.add_option("--threads", common.threads,
                  "Worker threads (default: CPUs allowed by affinity and cgroup quota)")
      ->check(CLI::Range(1, 1024))
      ->envname("HONE_THREADS");
  verb.add_option("--seed", common.seed, "Seed of every random choice")
      ->envname("HONE_SEED")
      ->capture_default_str();
  verb.add_flag("-q,--quiet", common.quiet, "Warnings and errors only");
  verb.add_flag("-v,--verbose", common.verbose, "More detail");
  verb.add_option("--force-isa", common.force_isa,
                  "Limit to scalar|sse4|avx2|avxvnni|avx512|avx512vnni|neon|sve")
      ->envname("HONE_FORCE_ISA");
}

void apply_common_options(const CommonOptions& common) {
  if (common.quiet) set_log_level(LogLevel::Warning);
  if (common.verbose > 0) set_log_level(LogLevel::Debug);
  if (!common.force_isa.empty()) force_isa(parse_isa(common.force_isa));
}

int run(int argc, char** argv) {
  Context context;
  CLI::App program{"hone: train, shrink and serve models in C++, and measure every claim", "hone"};
  program.set_version_flag("--version", version_text());
  program.require_subcommand(1);
  add_verbs(program, context);
  for (CLI::App* verb : program.get_subcommands([](CLI::App*) { return true; })) {
    // Option groups are nameless sub-commands to CLI11; they are no verbs.
    const auto nested =
        verb->get_subcommands([](const CLI::App* sub) { return !sub->get_name().empty(); });
    if (nested.empty()) add_common_options(*verb, context.common);
    for (CLI::App* leaf : nested) add_common_options(*leaf, context.common);
  }
  program.parse_complete_callback([&context] { apply_common_options(context.common); });
  try {
    program.parse(argc, argv);
  } catch (const CLI::Success& success) {
    return program.exit(success);
  } catch (const CLI::ParseError& error) {
    std::fprintf(stderr, "hone: %s (try --help)\n", error.what());
    return exit_status(ErrorCategory::InvalidArgument);
  }
  return context.status;
}

}  // namespace
}  // namespace hone::cli

int main(int argc, char** argv) {
  std::signal(SIGPIPE, SIG_IGN);  // a closed pipe is a write error, not a silent death
  try {
    if (const int status = hone::cli::hand_over_to_torch(argc, argv); status >= 0) return status;
    return hone::cli::run(argc, argv);
  } catch (const hone::Error& error) {
    std::fprintf(stderr, "hone: %s\n", error.what());
    return hone::exit_status(error.category());
  } catch (const std::bad_alloc&) {
    std::fprintf(stderr, "hone: out of memory\n");
    return hone::exit_status(hone::ErrorCategory::Resource);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "hone: internal error: %s\n", error.what());
    return hone::exit_status(hone::ErrorCategory::Internal);
  }
}
