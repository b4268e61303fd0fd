// Private to core/files/torch_file.cpp: reads the part of Python's pickle format (protocols 2 to 5)
// that describes plain values. The reader does not execute calls or look up names. A call becomes a
// value with the name and the arguments, which the user of this class interprets.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace axle {

// The contents of a pickle, which are a graph: lists and dicts can be referenced several times.
// Values refer to each other by index.
struct Pickle {
    enum class Kind : std::uint8_t {
        none,
        flag,  // integer is 0 or 1
        integer,
        number,
        text,
        tuple,
        list,
        dict,       // items are keys and values in turn
        name,       // text is "module.name"
        call,       // items are the name and the argument tuple
        reference,  // data outside the pickle; items are its identifier
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

// Returns the contents of a pickle. Throws FileError, with the reason but without a path, if the
// pickle is truncated, uses another part of the format, or contains a name for which `allowed`
// returns false. A collections.OrderedDict is always allowed and becomes a dict. Attributes that
// are set on an OrderedDict or on the result of a call are ignored.
Pickle read_pickle(std::span<const std::byte> bytes,
                   const std::function<bool(std::string_view name)>& allowed);

}  // namespace axle
