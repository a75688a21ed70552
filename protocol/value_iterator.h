// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// Walks over the values of a map, in the order of its keys, so that a container whose entries keep
// their numbers is used like a list.
//
// Thread contract: a plain value; valid as the map's own iterator is.

#ifndef BASIN_PROTOCOL_VALUE_ITERATOR_H_
#define BASIN_PROTOCOL_VALUE_ITERATOR_H_

#include <cstddef>
#include <iterator>
#include <type_traits>
#include <utility>

namespace basin {

template <typename Iterator>
class ValueIterator {
 public:
  using iterator_category = std::forward_iterator_tag;
  using difference_type = std::ptrdiff_t;
  using reference = decltype((std::declval<const Iterator&>()->second));
  using value_type = std::remove_cv_t<std::remove_reference_t<reference>>;
  using pointer = std::remove_reference_t<reference>*;

  ValueIterator() = default;
  explicit ValueIterator(Iterator at) : at_(at) {}
  reference operator*() const { return at_->second; }
  pointer operator->() const { return &at_->second; }
  ValueIterator& operator++() {
    ++at_;
    return *this;
  }
  ValueIterator operator++(int) { return ValueIterator(at_++); }
  bool operator==(const ValueIterator& other) const { return at_ == other.at_; }
  bool operator!=(const ValueIterator& other) const { return at_ != other.at_; }

 private:
  Iterator at_;
};

}  // namespace basin

#endif  // BASIN_PROTOCOL_VALUE_ITERATOR_H_
