// Private to the library: readable names of types.
#pragma once

#include <string>
#include <typeinfo>

namespace axle {

// Returns the name of a type as it is written in C++, such as "axle::nn::Linear".
std::string type_name(const std::type_info& type);

}  // namespace axle
