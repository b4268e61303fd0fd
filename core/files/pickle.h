// Private to core: reads the part of Python's pickle format (protocols 2 to 5) that describes plain
// values and objects. The reader does not execute calls or look up names. A call becomes a value
// with the name and the arguments; an object becomes a value with the class and the attributes. The
// caller interprets these values.
//
// Limits: a pickle has at most kMaxPickle bytes. Time is proportional to the number of opcodes and
// of the values that they refer to. The memory of values is charged to a MemoryBudget.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace axle {

// The largest pickle that is read, in bytes. Checkpoints need about 200 bytes per tensor.
inline constexpr std::size_t kMaxPickle = 100'000'000;

// The memory that the values of one file may still use. An opcode of one byte can create or repeat
// a value that needs many bytes, so the number of opcodes alone is not a limit.
class MemoryBudget {
  public:
    explicit MemoryBudget(std::size_t bytes) : total_(bytes), left_(bytes) {}

    // Throws FileError, without a path, if fewer bytes are left.
    void charge(std::size_t bytes);
    // Adds a value to the end of a vector, and charges the memory of a reallocation.
    template <class T>
    void append(std::vector<T>& to, T value) {
        if (to.size() == to.capacity()) charge(2 * (to.size() + 1) * sizeof(T));
        to.push_back(std::move(value));
    }
    template <class T>
    void append(std::vector<T>& to, std::span<const T> values) {
        if (values.size() > to.capacity() - to.size())
            charge(2 * (to.size() + values.size()) * sizeof(T));
        to.insert(to.end(), values.begin(), values.end());
    }

  private:
    std::size_t total_, left_;
};

// The contents of a pickle, which are a graph: lists and dicts can be referenced several times.
// Values refer to each other by index. Text is not copied, so the bytes of the pickle must outlive
// this object.
class Pickle {
  public:
    using Id = std::uint32_t;
    enum class Kind : std::uint8_t {
        none,
        flag,  // integer() is 0 or 1
        integer,
        number,
        text,
        tuple,
        list,
        dict,       // items are keys and values in turn
        name,       // text is "module.name"
        call,       // items are the name and the argument tuple
        object,     // items are the class, the argument tuple and, if it was set, the state
        reference,  // data outside the pickle; items are its identifier
    };
    struct Value {
        Kind kind = Kind::none;
        std::uint32_t size = 0;  // bytes of a text; number of items of a tuple, call or reference
        std::uint64_t bits = 0;  // the integer or number, or an index into a member of Pickle

        std::int64_t integer() const { return static_cast<std::int64_t>(bits); }
        double number() const { return std::bit_cast<double>(bits); }
    };

    Id root() const { return root_; }
    const Value& value(Id id) const { return values_[id]; }
    // Returns the text of a value of kind text or name.
    std::string_view text(const Value& value) const;
    // Returns the items of a tuple, list, dict, call, object or reference.
    std::span<const Id> items(const Value& value) const;

  private:
    friend class PickleMachine;
    std::string_view bytes_;
    std::deque<Value> values_;
    std::vector<Id> items_;                    // items of tuples, calls and references
    std::vector<std::vector<Id>> containers_;  // the items of lists, dicts and objects
    std::vector<std::string> names_;
    Id root_ = 0;
};

// Returns the contents of a pickle. Throws FileError, with the reason but without a path, if the
// pickle is invalid or uses an unsupported part of the format. Also throws FileError if the pickle
// is larger than kMaxPickle or exceeds the budget. `allowed` is called once for each name; if it
// returns false, this function throws FileError. A collections.OrderedDict is always allowed and
// becomes a dict. The state that is set on an OrderedDict or on the result of a call is ignored.
Pickle read_pickle(std::span<const std::byte> bytes, MemoryBudget& budget,
                   const std::function<bool(std::string_view name)>& allowed);

}  // namespace axle
