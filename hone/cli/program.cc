// SPDX-License-Identifier: Apache-2.0
#include <fcntl.h>
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <filesystem>
#include <new>
#include <span>
#include <string>
#include <vector>

#include "hone/cli/command.h"
#include "hone/cli/interrupt.h"
#include "hone/cli/validators.h"
#include "hone/cli/verbs.h"
#include "hone/core/check.h"
#include "hone/core/config/nearest_name.h"
#include "hone/core/log.h"
#include "hone/core/machine/cpu_info.h"
#include "hone/core/names.h"
#include "hone/core/thread/thread_pool.h"
#include "hone/core/version.h"

namespace hone::cli {

namespace {

constexpr int kMostThreads = 1024;
constexpr int kReaderGone = 128 + SIGPIPE;  // what a shell reports for programs that SIGPIPE ends

// One line on stderr.
void print_error(std::string_view message) {
  std::fprintf(stderr, "hone: %s\n", escape_controls(message).c_str());
}

// Flushes stdout. Returns false if the reader of the pipe is gone. `earlier` is the errno of an
// earlier write that failed.
bool flush_stdout(int earlier = 0) {
  const bool is_flushed = std::fflush(stdout) == 0;
  const int error = earlier != 0 ? earlier : errno;
  if (is_flushed && std::ferror(stdout) == 0) return true;
  const std::string problem =
      is_flushed && earlier == 0 ? "an earlier write failed" : std::strerror(error);
  pollfd reader{STDOUT_FILENO, POLLOUT, 0};
  if (::poll(&reader, 1, 0) == 1 && (reader.revents & POLLERR) != 0) return false;
  fail(ErrorCategory::Io, "stdout", concat("Could not write the result: ", problem));
}

}  // namespace

Executor& Context::executor() {
  static ThreadPool pool(common.threads, common.spread);
  return pool;
}

void Context::finish(const Json& document, const std::function<void()>& print) {
  if (common.json) {
    const std::string text = document.dump(2, ' ', false, Json::error_handler_t::replace);
    std::fprintf(stdout, "%s\n", text.c_str());
  } else {
    print();
  }
  if (!flush_stdout(output_error_)) status = kReaderGone;
}

bool Context::print(std::string_view text) {
  if (std::fwrite(text.data(), 1, text.size(), stdout) == text.size() && std::fflush(stdout) == 0) {
    return true;
  }
  if (output_error_ == 0) output_error_ = errno;
  return false;
}

void Context::start_trace(const std::string& verb) {
  if (common.trace.empty()) return;
  verb_ = verb;
  name_thread("main");
  recording_.emplace(common.trace);
  zone_.emplace(verb_.c_str());
}

void Context::finish_trace() {
  zone_.reset();
  if (recording_) recording_->finish();
}

namespace {

void add_common_options(CLI::App& verb, CommonOptions& common) {
  verb.add_flag("--json", common.json, "Print exactly one JSON document on stdout");
  verb.add_option("--threads", common.threads,
                  "Worker threads (default: CPUs allowed by affinity and cgroup quota)")
      ->check(whole_number(1, kMostThreads));
  verb.add_flag("--spread", common.spread,
                "Keep threads on different CPUs while other programs run; changes their affinity "
                "masks for moments");
  verb.add_option("--seed", common.seed,
                  "Seed of all random choices (default: 0); for train, it sets trainer.seed")
      ->check(whole_number(0));
  verb.add_flag("-q,--quiet", common.quiet, "Print no notes or progress");
  verb.add_flag("-v,--verbose", common.verbose, "Print more detail");
  verb.add_option(
      "--force-isa", common.force_isa,
      "Limit the instruction set to scalar|sse4|avx2|avxvnni|avx512|avx512vnni|amx|neon|sve");
}

// HONE_THREADS, where --threads is not given.
int threads_of(const CommonOptions& common) {
  const char* value = std::getenv("HONE_THREADS");
  if (common.threads > 0 || value == nullptr || *value == '\0') return common.threads;
  const std::string problem = whole_number(1, kMostThreads)(value);
  HONE_CHECK(problem.empty(), "HONE_THREADS", concat("a whole number from 1 to ", kMostThreads),
             value);
  return std::atoi(value);
}

// HONE_TRACE, where the verb takes --trace and it is not given.
std::string trace_of(const CLI::App& verb, const CommonOptions& common) {
  const char* value = std::getenv("HONE_TRACE");
  const bool takes = verb.get_option_no_throw("--trace") != nullptr;
  return takes && common.trace.empty() && value != nullptr ? value : common.trace;
}

void apply_common_options(CommonOptions& common) {
  common.threads = threads_of(common);
  if (common.quiet) set_log_level(LogLevel::Warning);
  if (common.verbose > 0) set_log_level(LogLevel::Debug);
  if (common.force_isa.empty()) {
    force_isa_from_environment();
  } else {
    force_isa(parse_isa(common.force_isa));
  }
  check_forced_kernels();
}

// Reports a word that follows a command with subcommands and is none of them.
void check_words(const CLI::App& command, const std::string& where, std::span<char*> words) {
  const auto verbs =
      command.get_subcommands([](const CLI::App* sub) { return !sub->get_name().empty(); });
  if (verbs.empty() || words.empty() || words[0][0] == '-') return;
  std::vector<std::string_view> known;
  for (const CLI::App* verb : verbs) {
    const std::string& name = verb->get_name();
    if (name == words[0]) return check_words(*verb, where + " " + name, words.subspan(1));
    known.push_back(name);
  }
  if (where == "hone") {  // those of hone-torch, too
    known.clear();
    for (const VerbEntry& entry : verb_entries()) known.push_back(entry.name);
  }
  fail_argument(where, describe_unknown("command", words[0], known));
}

// An option "--name=" without a value would otherwise take the next word as its value.
void check_values(std::span<char*> words) {
  for (const std::string_view word : words) {
    if (word == "--") return;
    if (!word.starts_with("--") || word.find('=') != word.size() - 1) continue;
    fail_argument(word.substr(0, word.size() - 1), "a value behind the equals sign", "none");
  }
}

// Looks in a command and its groups, which CLI11 treats as commands without a name: "prompt", "p".
void append_option_names(const CLI::App& command, std::vector<std::string>& names) {
  for (const CLI::Option* option : command.get_options()) {
    const auto add = [&](const std::string& name) { names.push_back(name); };
    std::ranges::for_each(option->get_lnames(), add);
    std::ranges::for_each(option->get_snames(), add);
  }
  for (const CLI::App* group :
       command.get_subcommands([](const CLI::App* sub) { return sub->get_name().empty(); })) {
    append_option_names(*group, names);
  }
}

bool is_option(std::string_view word) {
  const std::size_t name = word.find_first_not_of('-');
  const bool is_number = name == 1 && word.find_first_not_of("0123456789.", 1) == word.npos;
  return word.starts_with('-') && name != word.npos && !is_number;
}

// Reports an option that the command does not have. Other errors may follow from it: "--promt x"
// leaves the command without a prompt.
void check_options(const CLI::App& command, const std::string& where) {
  for (const CLI::App* verb : command.get_subcommands()) {
    if (!verb->get_name().empty()) return check_options(*verb, where + " " + verb->get_name());
  }
  for (const std::string& word : command.remaining()) {
    if (!is_option(word)) continue;
    const std::string dashes = word.substr(0, word.find_first_not_of('-'));
    const std::string name = word.substr(dashes.size(), word.find('=') - dashes.size());
    std::vector<std::string> names;
    append_option_names(command, names);
    const std::string_view nearest =
        nearest_name(name, std::vector<std::string_view>(names.begin(), names.end()));
    fail_argument(where, concat("Unknown option '", dashes, name, "'. ",
                                nearest.empty() ? concat("Try ", where, " --help.")
                                                : concat("Did you mean '--", nearest, "'?")));
  }
}

// "bench gemm"
std::string words_of(const CLI::App& program) {
  std::string words;
  for (const CLI::App* verb : program.get_subcommands()) {
    if (verb->get_name().empty()) continue;
    const std::string nested = words_of(*verb);
    words += concat(words.empty() ? "" : " ", verb->get_name(), nested.empty() ? "" : " ", nested);
  }
  return words;
}

// The innermost command that the words name.
const CLI::App& chosen_verb(const CLI::App& command) {
  for (const CLI::App* verb : command.get_subcommands()) {
    if (!verb->get_name().empty()) return chosen_verb(*verb);
  }
  return command;
}

int run(int argc, char** argv) {
  Context context;
  CLI::App program{"hone: train, shrink and run models in C++, and measure every claim", "hone"};
  program.set_version_flag("--version", version_text());
  program.require_subcommand(1);
  add_entries(program, context, verb_entries());
  for (CLI::App* verb : program.get_subcommands([](CLI::App*) { return true; })) {
    // CLI11 treats option groups as subcommands without a name.
    const auto nested =
        verb->get_subcommands([](const CLI::App* sub) { return !sub->get_name().empty(); });
    if (nested.empty()) add_common_options(*verb, context.common);
    for (CLI::App* leaf : nested) add_common_options(*leaf, context.common);
  }
  const std::span words = std::span(argv, static_cast<std::size_t>(argc)).subspan(1);
  check_words(program, "hone", words);
  check_values(words);
  program.parse_complete_callback([&] {
    apply_common_options(context.common);
    context.common.trace = trace_of(chosen_verb(program), context.common);
    context.start_trace(words_of(program));
  });
  try {
    program.parse(argc, argv);
  } catch (const CLI::Success& success) {
    const int status = program.exit(success);
    return flush_stdout() ? status : kReaderGone;
  } catch (const CLI::ParseError& error) {
    check_options(program, "hone");
    print_error(concat(error.what(), " (try --help)"));
    return exit_status(ErrorCategory::InvalidArgument);
  }
  context.finish_trace();
  return context.status;
}

// A standard stream that is closed would give its number to the next file that is opened, which
// then gets what is printed. Opens it so that reading and writing still fail.
void hold_standard_streams() {
  for (const int stream : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) {
    if (::fcntl(stream, F_GETFD) >= 0 || errno != EBADF) continue;
    [[maybe_unused]] const int opened =
        ::open("/dev/null", stream == STDIN_FILENO ? O_WRONLY : O_RDONLY);
  }
}

}  // namespace

int run_program(int argc, char** argv) {
  // A closed pipe and a file beyond the shell's size limit become write errors instead of ending
  // the process.
  hold_standard_streams();
  std::signal(SIGPIPE, SIG_IGN);
  std::signal(SIGXFSZ, SIG_IGN);
  try {
    if (const int status = hand_over_to_torch(argc, argv); status >= 0) return status;
    return run(argc, argv);
  } catch (const Error& error) {
    print_error(error.what());
    return error.category() == ErrorCategory::Cancelled ? Interrupt::exit_status()
                                                        : exit_status(error.category());
  } catch (const std::filesystem::filesystem_error& error) {
    const bool absent = error.code() == std::errc::too_many_symbolic_link_levels ||
                        error.code() == std::errc::no_such_file_or_directory ||
                        error.code() == std::errc::not_a_directory;
    print_error(concat("[", error.path1().string(), "] expected a path to use, got ",
                       error.code().message()));
    return exit_status(absent ? ErrorCategory::NotFound : ErrorCategory::Io);
  } catch (const std::bad_alloc&) {
    std::fprintf(stderr, "hone: out of memory\n");
    return exit_status(ErrorCategory::Resource);
  } catch (const std::exception& error) {
    // LibTorch's errors have a trace after the first line.
    const std::string_view what = error.what();
    print_error(concat("internal error: ", what.substr(0, what.find('\n'))));
    return exit_status(ErrorCategory::Internal);
  }
}

}  // namespace hone::cli
