// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// A list whose copies share their elements until one of them changes: a value like a vector, but as
// cheap to copy as a pointer. Some lists have tens of thousands of elements and go into a message
// for every worker.
//
// Thread contract: lists that share elements may be read by different threads, but while one of
// them is changed, the others belong to the same thread. Failure: none.

#ifndef BASIN_PROTOCOL_SHARED_LIST_H_
#define BASIN_PROTOCOL_SHARED_LIST_H_

#include <cstddef>
#include <initializer_list>
#include <memory>
#include <tuple>
#include <utility>
#include <vector>

namespace basin {

template <typename T>
class SharedList {
 public:
  using value_type = T;
  using const_iterator = typename std::vector<T>::const_iterator;
  using iterator = const_iterator;

  SharedList() = default;
  // Lists and vectors stand for each other.
  SharedList(std::vector<T> items)  // NOLINT(google-explicit-constructor)
      : items_(std::make_shared<std::vector<T>>(std::move(items))) {}
  SharedList(std::initializer_list<T> items) : SharedList(std::vector<T>(items)) {}
  operator const std::vector<T>&() const {  // NOLINT(google-explicit-constructor)
    return items();
  }

  const std::vector<T>& items() const {
    static const auto* const kNone = new std::vector<T>();
    return items_ == nullptr ? *kNone : *items_;
  }
  size_t size() const { return items().size(); }
  bool empty() const { return items().empty(); }
  const_iterator begin() const { return items().begin(); }
  const_iterator end() const { return items().end(); }
  const T& operator[](size_t index) const { return items()[index]; }
  const T& front() const { return items().front(); }
  const T& back() const { return items().back(); }

  // To change it; no other list changes with it.
  std::vector<T>& Own() {
    if (items_ == nullptr || items_.use_count() > 1) {
      items_ = std::make_shared<std::vector<T>>(items());
    }
    return *items_;
  }
  void push_back(T item) { Own().push_back(std::move(item)); }

  // The elements, for as long as anything has them: two lists with the same ones are equal.
  std::shared_ptr<const std::vector<T>> shared() const { return items_; }

  auto Fields() const { return std::tie(items()); }

 private:
  std::shared_ptr<std::vector<T>> items_;  // Null: none.
};

// Against each other, by Fields().
template <typename T>
bool operator==(const SharedList<T>& a, const std::vector<T>& b) {
  return a.items() == b;
}
template <typename T>
bool operator!=(const SharedList<T>& a, const std::vector<T>& b) {
  return !(a == b);
}

}  // namespace basin

#endif  // BASIN_PROTOCOL_SHARED_LIST_H_
