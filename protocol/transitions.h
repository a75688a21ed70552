// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// Executes tables of transitions: the row for a state and an input names the next state. An input
// without a row in this state changes nothing, and the call returns false.
//
// Thread contract: pure functions, and plain values.

#ifndef BASIN_PROTOCOL_TRANSITIONS_H_
#define BASIN_PROTOCOL_TRANSITIONS_H_

#include <cstddef>
#include <cstdint>
#include <tuple>
#include <type_traits>

namespace basin {

// The rows that a machine has taken, and whether it has refused an input. Only observers read this.
class RowsTaken {
 public:
  static constexpr size_t kMostRows = 31;

  void Take(size_t row) { bits_ |= uint32_t{1} << row; }
  void Refuse() { bits_ |= uint32_t{1} << kMostRows; }
  void Add(const RowsTaken& other) { bits_ |= other.bits_; }
  bool Has(size_t row) const { return (bits_ >> row & 1) != 0; }
  bool refused() const { return Has(kMostRows); }

 private:
  uint32_t bits_ = 0;
};

// Returns whether no two rows have the same state and input.
template <typename Row, size_t N>
constexpr bool IsUnambiguous(const Row (&table)[N]) {
  for (size_t i = 0; i < N; ++i) {
    for (size_t j = i + 1; j < N; ++j) {
      if (table[i].from == table[j].from && table[i].input == table[j].input) return false;
    }
  }
  return true;
}

// Returns the row for this state and input; null if the table has none.
template <typename Row, size_t N>
constexpr const Row* FindRow(const Row (&table)[N], decltype(Row::from) from,
                             decltype(Row::input) input) {
  for (const Row& row : table) {
    if (row.from == from && row.input == input) return &row;
  }
  return nullptr;
}

// Takes one input. Returns whether the table has it in this state; if not, nothing changes.
template <typename Row, size_t N>
bool ApplyRow(const Row (&table)[N], decltype(Row::to)& state, decltype(Row::input) input,
              RowsTaken& taken) {
  static_assert(N <= RowsTaken::kMostRows);
  const Row* row = FindRow(table, state, input);
  if (row == nullptr) {
    taken.Refuse();
    return false;
  }
  taken.Take(static_cast<size_t>(row - table));
  state = row->to;
  return true;
}

// A state that changes only by its table. It begins with the state of value 0 unless another one is
// given.
template <const auto& kTable>
class StateMachine {
 public:
  using Row = std::remove_extent_t<std::remove_reference_t<decltype(kTable)>>;
  using State = decltype(Row::to);
  using Input = decltype(Row::input);

  StateMachine() = default;
  explicit StateMachine(State first) : state_(first) {}

  State state() const { return state_; }
  const RowsTaken& taken() const { return taken_; }
  // Takes one input, as ApplyRow does.
  bool Apply(Input input) { return ApplyRow(kTable, state_, input, taken_); }

  auto Fields() const { return std::tie(state_); }

 private:
  State state_ = State{};
  RowsTaken taken_;
};

}  // namespace basin

#endif  // BASIN_PROTOCOL_TRANSITIONS_H_
