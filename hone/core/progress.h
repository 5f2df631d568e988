// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "hone/core/index.h"
#include "hone/core/machine/clock.h"

namespace hone {

// Shows the progress of a job on stderr: a bar with rate and time left on a terminal, otherwise a
// plain line after two seconds and then every few seconds. Shows nothing for jobs of up to two
// seconds and below LogLevel::Info.
class Progress {
 public:
  // total = 0 means unknown. `unit` is the plural noun shown with the rate ("tokens", "steps").
  // `clock` must outlive the object.
  Progress(std::string_view title, Index total, std::string_view unit,
           const Clock& clock = steady_clock());
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;
  ~Progress();  // finishes the line

  // For a job whose size becomes known, or changes, while it runs. Thread-safe.
  void set_total(Index total);
  // Thread-safe; cheap enough for every step (draws at most ten times a second).
  void update(Index done, std::string_view note = {});

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace hone
