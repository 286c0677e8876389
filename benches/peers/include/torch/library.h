#pragma once
// What Marlin's scalar_type.hpp takes from PyTorch: a check, of which no type that it names falls foul, and standard headers.
#include <cstdint>
#include <string>
#include <tuple>
#include <utility>
#include <variant>
#define TORCH_CHECK(...) static_cast<void>(0)
