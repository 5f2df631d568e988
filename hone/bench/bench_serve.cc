// SPDX-License-Identifier: Apache-2.0
#include "hone/bench/bench_serve.h"

#include <algorithm>
#include <array>
#include <exception>
#include <mutex>
#include <random>
#include <thread>
#include <utility>

#include "hone/bench/stream_client.h"
#include "hone/core/check.h"
#include "hone/core/philox.h"
#include "hone/measure/statistics.h"

namespace hone::bench {
namespace {

// Words that most vocabularies have as one token.
constexpr std::array<std::string_view, 32> kWords = {
    "time",    "year",    "people",   "way",    "day",   "man",    "thing",   "woman",
    "life",    "child",   "world",    "school", "state", "family", "student", "group",
    "country", "problem", "hand",     "part",   "place", "case",   "week",    "company",
    "system",  "program", "question", "work",   "night", "point",  "home",    "water"};

std::string words(std::uint64_t seed, Index count) {
  PhiloxStream random(seed);
  std::string out;
  for (Index i = 0; i < count; ++i) {
    if (i > 0) out += ' ';
    out += kWords[random.below(kWords.size())];
  }
  return out;
}

// The clients of one server.
class Clients {
 public:
  Clients(ServerUrl url, const BenchServeOptions& options, std::uint64_t seed)
      : url_(std::move(url)), options_(options), seed_(seed) {
    model_ = options.model.empty() ? first_model(url_, options.key) : options.model;
  }

  const std::string& name() const { return url_.name; }

  // Sends one request of each client at once. With a prefix, they share it.
  void run(Index streams, Index prefix, Index tokens) {
    const std::string shared = prefix > 0 ? words(next_seed(), prefix) + " " : "";
    std::vector<StreamRequest> requests;
    for (Index i = 0; i < streams; ++i) {
      requests.push_back(
          {.model = model_,
           .prompt = shared + words(next_seed(), prefix > 0 ? kTail : options_.prompt),
           .key = options_.key,
           .tokens = tokens});
    }
    round_.assign(requests.size(), {});
    std::exception_ptr failure;
    std::mutex mutex;
    std::vector<std::thread> threads;
    for (std::size_t i = 0; i < requests.size(); ++i) {
      threads.emplace_back([&, i] {
        try {
          round_[i] = stream_completion(url_, requests[i]);
        } catch (...) {
          const std::scoped_lock lock(mutex);
          failure = std::current_exception();
        }
      });
    }
    for (std::thread& thread : threads) thread.join();
    if (failure) std::rethrow_exception(failure);
    note();
  }

  // Seconds until the last answer ended, for as many tokens as were asked for.
  double seconds(Index tokens) const {
    double last = 0;
    Index got = 0;
    for (const StreamTimes& times : round_) {
      last = std::max(last, times.end);
      got += times.tokens;
    }
    HONE_CHECK(got > 0, "bench serve", concat("tokens from ", name()), "none");
    return last * static_cast<double>(tokens * std::ssize(round_)) / static_cast<double>(got);
  }

  double median_first() const {
    std::vector<double> first;
    for (const StreamTimes& times : round_) first.push_back(times.first());
    return measure::quantile(first, 0.5);
  }

  void forget() {
    first_.clear();
    gaps_.clear();
  }

  // What the clients saw since forget().
  Json seen() const {
    Json row = {{"first_token_ms", 1e3 * measure::quantile(first_, 0.5)},
                {"p99_first_token_ms", 1e3 * measure::quantile(first_, 0.99)},
                {"prompt_tokens", prompt_tokens_},
                {"n", first_.size()}};
    if (!gaps_.empty()) {
      row["between_ms"] = 1e3 * measure::quantile(gaps_, 0.5);
      row["p99_between_ms"] = 1e3 * measure::quantile(gaps_, 0.99);
    }
    return row;
  }

 private:
  static constexpr Index kTail = 16;  // words of each client after a shared prefix

  std::uint64_t next_seed() { return seed_ + drawn_++; }

  void note() {
    for (const StreamTimes& times : round_) {
      first_.push_back(times.first());
      for (std::size_t i = 1; i < times.pieces.size(); ++i) {
        gaps_.push_back(times.pieces[i] - times.pieces[i - 1]);
      }
      prompt_tokens_ = times.prompt_tokens;
    }
  }

  ServerUrl url_;
  const BenchServeOptions& options_;
  std::string model_;
  std::uint64_t seed_, drawn_ = 0;
  std::vector<StreamTimes> round_;
  std::vector<double> first_, gaps_;
  Index prompt_tokens_ = 0;
};

void add_case(std::vector<Clients>& servers, const std::string& name, double tokens,
              const std::function<void(Clients&)>& work,
              const std::function<double(const Clients&)>& seconds, BenchRun& run) {
  BenchCase one;
  one.name = name;
  one.tokens = tokens;
  one.no_memory_share = "servers are measured from outside";
  for (Clients& clients : servers) {
    one.contestants.push_back({.name = clients.name(),
                               .run = [&] { work(clients); },
                               .own_seconds = [&] { return seconds(clients); }});
    one.ours.push_back(&clients == servers.data());
  }
  for (Clients& clients : servers) clients.forget();
  run.add(one);
  for (const Clients& clients : servers) {
    Json row = clients.seen();
    const std::string note = concat(
        "first token ", row["first_token_ms"].get<double>(), " ms, p99 ",
        row["p99_first_token_ms"].get<double>(), " ms",
        row.contains("between_ms") ? concat("; between pieces ", row["between_ms"].get<double>(),
                                            " ms, p99 ", row["p99_between_ms"].get<double>(), " ms")
                                   : std::string());
    Json named = {{"case", name + "/latency"}, {"impl", clients.name()}};
    named.update(row);
    run.add_untimed(std::move(named), note);
  }
}

}  // namespace

void bench_serve(const BenchServeOptions& options, BenchRun& run) {
  HONE_CHECK(!options.urls.empty(), "bench serve", "the URL of a server", 0);
  // Servers keep prefixes, also of earlier runs.
  const std::uint64_t seed = std::uint64_t{std::random_device{}()} << 24;
  std::vector<Clients> servers;
  servers.reserve(options.urls.size());
  for (const std::string& url : options.urls) {
    servers.emplace_back(read_server_url(url), options, seed);
  }
  for (const Index streams : options.streams) {
    HONE_CHECK(streams >= 1 && streams <= 1024, "--streams", "1 to 1024", streams);
    add_case(
        servers, concat("x", streams, "/p", options.prompt, "/t", options.tokens),
        static_cast<double>(streams * options.tokens),
        [&](Clients& clients) { clients.run(streams, 0, options.tokens); },
        [&](const Clients& clients) { return clients.seconds(options.tokens); }, run);
    for (const Index prefix : options.prefixes) {
      add_case(
          servers, concat("x", streams, "/prefix", prefix), 0,
          [&](Clients& clients) { clients.run(streams, prefix, 2); },
          [](const Clients& clients) { return clients.median_first(); }, run);
    }
  }
}

}  // namespace hone::bench
