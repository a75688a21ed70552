// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// Adds items to a task of task.h, and runs the task on a queue whenever it is full.
//
// Ownership: refers to the queue. Thread contract: as the queue. Failure: that of the queue; then
// nothing more is to be added.

#ifndef BASIN_ACCELERATOR_DEVICE_TASK_BATCH_H_
#define BASIN_ACCELERATOR_DEVICE_TASK_BATCH_H_

#include <iterator>
#include <optional>
#include <type_traits>
#include <utility>

#include "accelerator/device/memory.h"

namespace basin::accelerator {

template <typename Queue, typename Task>
class TaskBatch {
 public:
  using Item = std::remove_reference_t<decltype(*std::begin(std::declval<Task&>().items))>;

  // `task`: without items.
  TaskBatch(Queue& queue, const Task& task) : queue_(queue), task_(task) {}

  std::optional<Failure> Add(const Item& item) {
    task_.items[task_.count++] = item;
    return task_.count < std::size(task_.items) ? std::nullopt : Finish();
  }

  // Runs what is left.
  std::optional<Failure> Finish() {
    if (task_.count == 0) return std::nullopt;
    auto failure = queue_.Run(task_);
    task_.count = 0;
    return failure;
  }

 private:
  Queue& queue_;
  Task task_;
};

}  // namespace basin::accelerator

#endif  // BASIN_ACCELERATOR_DEVICE_TASK_BATCH_H_
