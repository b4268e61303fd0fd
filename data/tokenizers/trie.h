// Private to data/tokenizers: a trie that finds the tokens at the start of a text.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <utility>
#include <vector>

namespace axle::data::tokenizers {

// A byte trie of tokens. The children of a node are consecutive and sorted by byte.
class Trie {
  public:
    // The tokens must be sorted and distinct.
    explicit Trie(const std::vector<std::pair<std::string_view, std::int64_t>>& tokens) {
        struct Task {
            std::size_t node, begin, end, depth;
        };
        std::vector<Task> tasks = {{0, 0, tokens.size(), 0}};
        nodes_.emplace_back();
        for (std::size_t t = 0; t < tasks.size(); ++t) {
            auto [node, begin, end, depth] = tasks[t];
            if (begin < end && tokens[begin].first.size() == depth)
                nodes_[node].id = tokens[begin++].second;
            nodes_[node].first = static_cast<std::uint32_t>(nodes_.size());
            for (std::size_t next = begin; begin < end; begin = next) {
                const char byte = tokens[begin].first[depth];
                while (next < end && tokens[next].first[depth] == byte) ++next;
                tasks.push_back({nodes_.size(), begin, next, depth + 1});
                nodes_.push_back({.byte = static_cast<unsigned char>(byte)});
                ++nodes_[node].count;
            }
        }
    }

    // Calls f(id, length) for each token at the start of a text.
    template <class F>
    void for_each_prefix(std::string_view text, F&& f) const {
        const Node* node = nodes_.data();
        for (std::size_t i = 0; i < text.size(); ++i) {
            const auto byte = static_cast<unsigned char>(text[i]);
            const Node* const begin = nodes_.data() + node->first;
            const Node* const end = begin + node->count;
            node = std::lower_bound(begin, end, byte,
                                    [](const Node& n, unsigned char b) { return n.byte < b; });
            if (node == end || node->byte != byte) return;
            if (node->id >= 0) f(node->id, i + 1);
        }
    }

  private:
    struct Node {
        std::uint32_t first = 0;  // the first child
        std::uint16_t count = 0;  // number of children
        unsigned char byte = 0;
        std::int64_t id = -1;  // the id of the token that ends here, or -1
    };
    std::vector<Node> nodes_;
};

}  // namespace axle::data::tokenizers
