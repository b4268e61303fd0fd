// Private to core/files/torch_file.cpp: the part of Python's pickle format, protocols 2 to 5, that
// says plain values. Nothing is executed and nothing is looked up: a call is a value that says
// which name would be called with what, and whoever reads it decides what that means.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace axle::inline v0 {

// A pickle is a graph: lists and dicts may be met again. Values are named by their index.
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
        call,       // items are the name and the tuple of its arguments
        reference,  // to data outside of the pickle; items are the value that tells which
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

// FileError with the bare reason for a pickle that ends early, uses anything else of the format, or
// names what is not `allowed`. A collections.OrderedDict, which need not be allowed, is a dict;
// what it has beside its entries is left out, and so is what a call's value is given later.
Pickle read_pickle(std::span<const std::byte> bytes,
                   const std::function<bool(std::string_view name)>& allowed);

}  // namespace axle::inline v0
