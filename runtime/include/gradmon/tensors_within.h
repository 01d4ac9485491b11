// SPDX-License-Identifier: Apache-2.0
// Finds the tensors in the arguments and the result of a forward, for observe().
#pragma once

#include <string>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include "gradmon/forward_entry.h"

namespace torch::nn {
class AnyValue;
}  // namespace torch::nn

namespace gradmon {
namespace tensors_within {

template <typename T, typename = void>
struct IsOptional : std::false_type {};
template <typename T>
struct IsOptional<T, std::void_t<typename T::value_type, decltype(std::declval<const T&>().has_value()),
                                 decltype(*std::declval<const T&>())>> : std::true_type {};

template <typename T, typename = void>
struct IsTuple : std::false_type {};
template <typename T>
struct IsTuple<T, std::void_t<decltype(std::tuple_size<T>::value)>> : std::true_type {};

template <typename T, typename = void>
struct IsMap : std::false_type {};
template <typename T>
struct IsMap<T, std::void_t<typename T::mapped_type, typename T::key_type>>
    : std::is_convertible<typename T::key_type, std::string> {};

template <typename T, typename = void>
struct IsRange : std::false_type {};
template <typename T>
struct IsRange<T, std::void_t<decltype(std::declval<const T&>().begin() != std::declval<const T&>().end())>>
    : std::true_type {};

// True if a T can contain tensors. False for strings and lists of numbers, for example.
template <typename T>
constexpr bool may_hold();

template <typename T, std::size_t... I>
constexpr bool any_may_hold(std::index_sequence<I...>) {
  return (may_hold<std::decay_t<std::tuple_element_t<I, T>>>() || ...);
}

template <typename T>
constexpr bool may_hold() {
  if constexpr (std::is_base_of_v<at::Tensor, T> || std::is_same_v<T, torch::nn::AnyValue>) {
    return true;
  } else if constexpr (IsTuple<T>::value) {
    return any_may_hold<T>(std::make_index_sequence<std::tuple_size_v<T>>{});
  } else if constexpr (IsMap<T>::value) {
    return may_hold<std::decay_t<typename T::mapped_type>>();
  } else if constexpr (IsOptional<T>::value) {
    return may_hold<std::decay_t<typename T::value_type>>();
  } else if constexpr (IsRange<T>::value) {
    using Element = std::decay_t<decltype(*std::declval<const T&>().begin())>;
    if constexpr (std::is_same_v<Element, T>)
      return false;  // a path is a range of paths
    else
      return may_hold<Element>();
  } else {
    return false;
  }
}

// True if the value is a tensor itself (or in an optional), not in a container.
template <typename T>
bool is_lone(const T& value) {
  if constexpr (std::is_same_v<T, torch::nn::AnyValue>) {
    return const_cast<T&>(value).template try_get<at::Tensor>() != nullptr;
  } else {
    return std::is_base_of_v<at::Tensor, T> || IsOptional<T>::value;
  }
}

inline void put(ForwardTensors& found, const at::Tensor& tensor, const std::string& key) {
  if (tensor.defined())
    found.elements.push_back({tensor, key.empty() ? std::to_string(found.places) : key, found.places});
  ++found.places;
}

template <typename T>
void add(ForwardTensors& found, const T& value, const std::string& key = {});

// Adds the tensors of a type-erased value if it holds one of the `Known` types.
template <typename Value, typename... Known>
void add_any(ForwardTensors& found, Value& value) {
  const bool one = ([&] {
    const Known* const held = value.template try_get<Known>();
    if (held) add(found, *held);
    return held != nullptr;
  }() || ...);
  if (!one) ++found.places;
}

template <typename T>
void add(ForwardTensors& found, const T& value, const std::string& key) {
  if constexpr (!may_hold<T>()) {
    ++found.places;
  } else if constexpr (std::is_base_of_v<at::Tensor, T>) {
    put(found, value, key);
  } else if constexpr (std::is_same_v<T, torch::nn::AnyValue>) {
    using at::Tensor;
    add_any<T, Tensor, std::tuple<Tensor, Tensor>, std::tuple<Tensor, Tensor, Tensor>,
            std::tuple<Tensor, std::tuple<Tensor, Tensor>>, std::vector<Tensor>>(found,
                                                                                 const_cast<T&>(value));
  } else if constexpr (IsTuple<T>::value) {
    std::apply([&](const auto&... elements) { (add(found, elements), ...); }, value);
  } else if constexpr (IsMap<T>::value) {
    for (const auto& [name, element] : value) add(found, element, name);
  } else if constexpr (IsOptional<T>::value) {
    if (value.has_value()) {
      add(found, *value, key);
    } else {
      ++found.places;
    }
  } else {
    for (const auto& element : value) add(found, element);
  }
}

}  // namespace tensors_within

template <typename... Arguments>
ForwardTensors tensors_in_arguments(const Arguments&... arguments) {
  ForwardTensors found;
  (tensors_within::add(found, arguments), ...);
  return found;
}

template <typename Result>
ForwardTensors tensors_in_result(const Result& result) {
  ForwardTensors found;
  tensors_within::add(found, result);
  found.lone = found.elements.size() == 1 && tensors_within::is_lone(result);
  if (found.lone) found.elements.front().key.clear();
  return found;
}

}  // namespace gradmon
