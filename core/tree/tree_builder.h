// Private to Axle: creates a Tree from the events of a JSON parser.
#pragma once

#include <cstddef>
#include <string>
#include <utility>
#include <vector>

#include "core/tree/tree.h"
#include "core/tree/tree_checks.h"
#include "kernels/error.h"

namespace axle::tree {

// Receives values, keys and brackets in the order of the text. It uses no recursion: a vector
// contains the open lists and maps, and each of them moves into its parent when it is closed. The
// parser checks that brackets match and that the values of maps have keys. The functions throw the
// ValueErrors of from_json() for values that are nested too deeply, duplicate keys, and values that
// need more than `max_memory` bytes.
class TreeBuilder {
  public:
    explicit TreeBuilder(std::size_t max_memory) : max_memory_(max_memory), left_(max_memory) {}

    void add(Tree value) {
        if (open_.empty()) {
            root_ = std::move(value);
        } else if (open_.back().is_list()) {
            append(open_.back().elements(), std::move(value));
        } else {
            open_.back().entries().back().value = std::move(value);
        }
    }
    void add_string(std::string value) {
        charge(value.size());
        add(std::move(value));
    }
    void add_key(std::string key) {
        charge(key.size());
        append(open_.back().entries(), {std::move(key), Tree()});
    }
    void open_list() { open(Tree::list()); }
    // Reserves memory for a number of keys.
    void open_map(std::size_t keys = 0) {
        open(Tree::map());
        if (keys > 0) {
            charge(keys * sizeof(Tree::Entry));
            open_.back().entries().reserve(keys);
        }
    }
    void close_list() { close(); }
    void close_map() {
        check_keys("from_json", open_.back().entries());
        close();
    }

    // Returns the value after the last event.
    Tree take() { return std::move(root_); }

  private:
    void open(Tree container) {
        open_.push_back(std::move(container));
        check_depth("from_json", static_cast<int>(open_.size()));
    }
    void close() {
        Tree closed = std::move(open_.back());
        open_.pop_back();
        add(std::move(closed));
    }

    // Adds a value to the end of a vector. Counts the memory of a reallocation toward the limit.
    template <class T>
    void append(std::vector<T>& to, T value) {
        if (to.size() == to.capacity()) charge(2 * (to.size() + 1) * sizeof(T));
        to.push_back(std::move(value));
    }
    void charge(std::size_t bytes) {
        if (bytes > left_)
            throw ValueError(str(
                "from_json: the values need more memory than the limit: ", max_memory_, " bytes"));
        left_ -= bytes;
    }

    Tree root_;
    std::vector<Tree> open_;
    std::size_t max_memory_, left_;
};

}  // namespace axle::tree
