// Private to core/files/torch_file.cpp: reads the part of Python's pickle format (protocols 2 to 5)
// that describes plain values. Nothing is executed or looked up: a call becomes a value that
// records the name and the arguments, and the caller decides what it means.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace axle {

// A pickle is a graph: lists and dicts can be referenced several times. Values refer to each other
// by index.
struct Pickle {
    enum class Kind : std::uint8_t {
        none,
        flag,  // integer is 0 or 1
        integer,
        number,
        text,
        tuple,
        list,
        dict,       // items are key, value, key, value, ...
        name,       // text is "module.name"
        call,       // items are the name and the argument tuple
        reference,  // to data outside the pickle; items are its identifier
    };
    struct Value {
        Kind kind = Kind::none;
        std::int64_t integer = 0;
        double number = 0;
        std::string text = {};
        std::vector<std::uint32_t> items = {};
    };

    std::vector<Value> values;
    std::uint32_t root = 0;
};

// Throws FileError with the bare reason if the pickle is truncated, uses another part of the
// format, or contains a name that is not `allowed`. A collections.OrderedDict is always allowed and
// becomes a dict. Attributes set on it or on the result of a call are ignored.
Pickle read_pickle(std::span<const std::byte> bytes,
                   const std::function<bool(std::string_view name)>& allowed);

}  // namespace axle
