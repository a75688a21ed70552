// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0

#include "client/core/launcher.h"

#include <algorithm>
#include <array>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"

namespace basin::client {
namespace {

// ---- who this is

enum class Position : uint8_t {
  kInner,   // It starts processes.
  kEither,  // It starts processes, or other launchers.
  kOuter,   // What runs in a pod may number it in its own way.
};

struct Launcher {
  const char* name;
  Position position;
  const char* rank;
  const char* size;    // Null: it does not say.
  const char* proves;  // Its numbers are of this process only beside this variable. Null: always.
};

// Innermost first.
constexpr std::array kLaunchers = {
    Launcher{"torchrun", Position::kInner, "RANK", "WORLD_SIZE", "LOCAL_RANK"},
    // As of torchrun, but by hand, or by an operator for the launcher of a pod.
    Launcher{"the environment", Position::kInner, "RANK", "WORLD_SIZE", nullptr},
    Launcher{"Open MPI", Position::kInner, "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", nullptr},
    // MPICH, Intel MPI, and Slurm with --mpi=pmi2.
    Launcher{"PMI", Position::kInner, "PMI_RANK", "PMI_SIZE", nullptr},
    Launcher{"Horovod", Position::kInner, "HOROVOD_RANK", "HOROVOD_SIZE", nullptr},
    // The script of a batch job has SLURM_PROCID, too, and is not a task.
    Launcher{"Slurm", Position::kEither, "SLURM_PROCID", "SLURM_NTASKS", "SLURM_STEP_ID"},
    Launcher{"Kubernetes", Position::kOuter, "JOB_COMPLETION_INDEX", nullptr, nullptr},
};

struct Said {
  const Launcher* launcher = nullptr;
  uint32_t rank = 0;
  std::optional<uint32_t> size;
};

absl::StatusOr<uint32_t> Number(const char* name, const std::string& text, const char* launcher) {
  uint32_t number = 0;
  if (absl::SimpleAtoi(text, &number)) return number;
  return absl::InvalidArgumentError(absl::StrCat(
      "The environment has ", name, "=", text, ", which is no number of ", launcher,
      ". Unset it, or set worker_id (BASIN_WORKER_ID) and max_workers (BASIN_MAX_WORKERS)."));
}

absl::StatusOr<Said> SaidBy(const Launcher& launcher, const std::string& rank,
                            Variables variables) {
  Said said;
  said.launcher = &launcher;
  const auto number = Number(launcher.rank, rank, launcher.name);
  if (!number.ok()) return number.status();
  said.rank = *number;
  if (launcher.size == nullptr) return said;
  const std::optional<std::string> size = variables(launcher.size);
  if (!size.has_value()) return said;
  const auto workers = Number(launcher.size, *size, launcher.name);
  if (!workers.ok()) return workers.status();
  said.size = *workers;
  if (said.rank < *said.size) return said;
  return absl::InvalidArgumentError(
      absl::StrCat("The environment has ", launcher.rank, "=", said.rank, " and ", launcher.size,
                   "=", *said.size, ", but ranks are from 0 to ", launcher.size,
                   " - 1. Correct them, or set worker_id (BASIN_WORKER_ID) and max_workers "
                   "(BASIN_MAX_WORKERS)."));
}

bool Agree(const Said& one, const Said& other) {
  const bool sizes = !one.size.has_value() || !other.size.has_value() || one.size == other.size;
  return one.rank == other.rank && sizes;
}

std::string Text(const Said& said) {
  std::string text = absl::StrCat(said.launcher->rank, "=", said.rank);
  if (said.size.has_value()) absl::StrAppend(&text, " of ", *said.size);
  return absl::StrCat(text, " (", said.launcher->name, ")");
}

// Whether `inner`, which comes first in the table, has surely been started by `outer`.
bool Encloses(const Said& outer, const Said& inner) {
  if (outer.launcher->position == Position::kOuter) return true;
  // torchrun sets all of its variables; RANK alone may be left over from anywhere.
  const bool is_torchrun = inner.launcher == &kLaunchers[0];
  const bool is_by_hand = inner.launcher == &kLaunchers[1];
  return is_torchrun || (outer.launcher->position == Position::kEither && !is_by_hand);
}

// ---- where this is

struct Numbers {
  const char* local_rank;
  const char* local_size;
  const char* machine;     // Null: it does not say.
  const char* machines;    // As above.
  const char* world_rank;  // For those that do not say.
  const char* world_size;
};

// Innermost first. Those of Slurm are below.
constexpr std::array kPlaces = {
    Numbers{"BASIN_RUN_RANK", "BASIN_RUN_SIZE", "BASIN_RUN_MACHINE", "BASIN_RUN_MACHINES", nullptr,
            nullptr},
    Numbers{"LOCAL_RANK", "LOCAL_WORLD_SIZE", "GROUP_RANK", "GROUP_WORLD_SIZE", nullptr, nullptr},
    Numbers{"OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_SIZE", nullptr, nullptr,
            "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"},
    Numbers{"MPI_LOCALRANKID", "MPI_LOCALNRANKS", nullptr, nullptr, "PMI_RANK", "PMI_SIZE"},
    Numbers{"HOROVOD_LOCAL_RANK", "HOROVOD_LOCAL_SIZE", "HOROVOD_CROSS_RANK", "HOROVOD_CROSS_SIZE",
            nullptr, nullptr},
};

std::optional<uint64_t> NumberIn(Variables variables, const char* name) {
  uint64_t number = 0;
  const std::optional<std::string> text = variables(name);
  return text.has_value() && absl::SimpleAtoi(*text, &number) ? std::optional(number)
                                                              : std::nullopt;
}

// MPI does not number machines. Consecutive ranks fill one after the other, unless the user maps
// them in another way; then some rank sees that it is so, and the number is not known there.
void CountMachines(const Numbers& numbers, Variables variables, LaunchedPlace* place) {
  const auto rank = NumberIn(variables, numbers.world_rank);
  const auto size = NumberIn(variables, numbers.world_size);
  const auto local_rank = NumberIn(variables, numbers.local_rank);
  const auto local_size = NumberIn(variables, numbers.local_size);
  place->numbers_machines = false;
  if (!rank || !size || !local_rank || local_size.value_or(0) == 0) return;
  if (*size % *local_size != 0 || *rank % *local_size != *local_rank) return;
  place->machine = absl::StrCat(*rank / *local_size);
  place->machines = absl::StrCat(*size / *local_size);
}

// The number of tasks on a node, of a list for all nodes such as 2(x3),1: three nodes with two
// tasks, then one with one.
std::optional<std::string> TasksOf(uint64_t node, const std::string& list) {
  for (const absl::string_view entry : absl::StrSplit(list, ',')) {
    const std::pair<absl::string_view, absl::string_view> parts =
        absl::StrSplit(entry, absl::MaxSplits("(x", 1));
    uint64_t nodes = 1;
    const absl::string_view times = parts.second.substr(0, parts.second.find(')'));
    if (!times.empty() && !absl::SimpleAtoi(times, &nodes)) return std::nullopt;
    if (node < nodes) return std::string(parts.first);
    node -= nodes;
  }
  return std::nullopt;
}

std::optional<LaunchedPlace> PlaceInSlurm(Variables variables) {
  const bool is_task = variables("SLURM_STEP_ID").has_value();
  const auto node = NumberIn(variables, "SLURM_NODEID");
  const std::optional<std::string> tasks = variables("SLURM_STEP_TASKS_PER_NODE");
  if (!is_task || !node.has_value() || !tasks.has_value()) return std::nullopt;
  LaunchedPlace place;
  place.rank_variable = "SLURM_LOCALID";
  place.size_variable = "SLURM_STEP_TASKS_PER_NODE";
  place.local_rank = variables("SLURM_LOCALID");
  place.local_size = TasksOf(*node, *tasks);
  place.machine = absl::StrCat(*node);
  place.machines = variables("SLURM_STEP_NUM_NODES");
  return place;
}

}  // namespace

absl::StatusOr<std::optional<LaunchedIdentity>> ReadIdentity(Variables variables) {
  std::vector<Said> all;
  for (const Launcher& launcher : kLaunchers) {
    const bool is_known = std::any_of(all.begin(), all.end(), [&](const Said& said) {
      return absl::string_view(said.launcher->rank) == launcher.rank;
    });
    const std::optional<std::string> rank = variables(launcher.rank);
    if (is_known || !rank.has_value()) continue;
    if (launcher.proves != nullptr && !variables(launcher.proves).has_value()) continue;
    const auto said = SaidBy(launcher, *rank, variables);
    if (!said.ok()) return said.status();
    all.push_back(*said);
  }
  if (all.empty()) return std::optional<LaunchedIdentity>();
  const Said& first = all.front();
  LaunchedIdentity identity{first.rank, first.size, ""};
  for (const Said& other : all) {
    if (Agree(first, other)) continue;
    if (!Encloses(other, first)) {
      return absl::InvalidArgumentError(absl::StrCat(
          "The environment has ", Text(first), " and ", Text(other),
          ", which are different workers. Unset the variables of the launcher that has not started "
          "this process, or set worker_id (BASIN_WORKER_ID) and max_workers (BASIN_MAX_WORKERS)."));
    }
    absl::StrAppend(&identity.decision,
                    identity.decision.empty() ? "this worker is " + Text(first) + "; not counted: "
                                              : std::string(", "),
                    Text(other));
  }
  return std::optional(std::move(identity));
}

LaunchedPlace ReadPlace(Variables variables) {
  for (const Numbers& numbers : kPlaces) {
    if (!variables(numbers.local_rank).has_value()) continue;
    LaunchedPlace place;
    place.rank_variable = numbers.local_rank;
    place.size_variable = numbers.local_size;
    place.local_rank = variables(numbers.local_rank);
    place.local_size = variables(numbers.local_size);
    if (numbers.machine == nullptr) {
      CountMachines(numbers, variables, &place);
    } else {
      place.machine = variables(numbers.machine);
      place.machines = variables(numbers.machines);
    }
    return place;
  }
  return PlaceInSlurm(variables).value_or(LaunchedPlace{});
}

std::string MachineOnHost(const LaunchedPlace& place) {
  return place.numbers_machines ? place.machine.value_or("0") : "0";
}

}  // namespace basin::client
