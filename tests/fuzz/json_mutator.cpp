// Makes libFuzzer change JSON as a tree, so that most of its inputs remain valid JSON. A program
// that is linked with this file has inputs of JSON, or of JSON, a byte 0xFF and other bytes.
#include <algorithm>
#include <cstdint>
#include <cstring>
#include <optional>
#include <random>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

// libFuzzer's function that changes bytes. Returns the new size.
// NOLINTNEXTLINE(readability-identifier-naming): libFuzzer's
extern "C" std::size_t LLVMFuzzerMutate(std::uint8_t* data, std::size_t size, std::size_t max_size);

namespace axle::tests {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::ptrdiff_t kMaxContainers = 1000;  // bounds the depth of the recursion

struct Input {
    Json json;
    std::string rest;  // from the byte 0xFF to the end
};

std::optional<Input> parse(const std::uint8_t* data, std::size_t size) {
    const std::string_view text(reinterpret_cast<const char*>(data), size);
    const std::size_t end = std::min(text.find('\xff'), size);
    const auto opens = [](char c) { return c == '[' || c == '{'; };
    if (std::ranges::count_if(text.substr(0, end), opens) > kMaxContainers) return std::nullopt;
    Json json = Json::parse(text.substr(0, end), nullptr, /*allow_exceptions=*/false);
    if (json.is_discarded()) return std::nullopt;
    return Input{std::move(json), std::string(text.substr(end))};
}

// Writes the input and returns its size. Returns 0 if it is larger than max_size.
std::size_t write(const Input& input, std::uint8_t* data, std::size_t max_size) {
    const std::string text =
        input.json.dump(-1, ' ', false, Json::error_handler_t::replace) + input.rest;
    if (text.size() > max_size) return 0;
    std::memcpy(data, text.data(), text.size());
    return text.size();
}

// A value of a tree. Elements of an array have the array's key.
struct Place {
    Json* value;
    Json* parent;  // nullptr for the root
    std::string_view key;
};

void collect(Json& value, Json* parent, std::string_view key, std::vector<Place>& places) {
    places.push_back({&value, parent, key});
    if (value.is_object())
        for (auto& [name, child] : value.get_ref<Json::object_t&>())
            collect(child, &value, name, places);
    if (value.is_array())
        for (Json& child : value) collect(child, &value, key, places);
}

std::vector<Place> places_of(Json& root) {
    std::vector<Place> places;
    collect(root, nullptr, "", places);
    return places;
}

class Mutator {
  public:
    explicit Mutator(unsigned seed) : random_(seed) {}

    std::size_t below(std::size_t n) {
        return std::uniform_int_distribution<std::size_t>(0, n - 1)(random_);
    }

    template <typename T>
    T& pick(std::vector<T>& values) {
        return values[below(values.size())];
    }

    std::string mutate(const std::string& text) {
        std::string bytes = text;
        bytes.resize(text.size() + 16);
        bytes.resize(LLVMFuzzerMutate(reinterpret_cast<std::uint8_t*>(bytes.data()), text.size(),
                                      bytes.size()));
        return bytes;
    }

    // Changes one value of the tree.
    void mutate(Json& root) {
        std::vector<Place> places = places_of(root);
        const Place place = pick(places);
        switch (below(8)) {
            case 0:
                *place.value = constant();
                break;
            case 1:
                erase(place);
                break;
            case 2:
                repeat(place);
                break;
            case 3:
                rename(place, pick(places));
                break;
            case 4:
                *place.value = Json(*pick(places).value);
                break;
            case 5:
                nest(place);
                break;
            case 6:
                *place.value = Json(similar(place, places));
                break;
            default:
                change(*place.value);
        }
    }

    // Replaces one value by a value of the other tree, if possible one with the same key.
    void cross_over(Json& root, Json& other) {
        std::vector<Place> places = places_of(root), others = places_of(other);
        const Place place = pick(places);
        *place.value = Json(similar(place, others));
    }

  private:
    Json constant() {
        static const std::vector<Json> constants = {nullptr,
                                                    true,
                                                    false,
                                                    0,
                                                    1,
                                                    -1,
                                                    2,
                                                    255,
                                                    65536,
                                                    INT64_MAX,
                                                    INT64_MIN,
                                                    UINT64_MAX,
                                                    0.5,
                                                    -1e308,
                                                    "",
                                                    "a",
                                                    " ",
                                                    Json::array(),
                                                    Json::object(),
                                                    Json::array({Json::array()})};
        return constants[below(constants.size())];
    }

    static void erase(const Place& place) {
        if (place.parent == nullptr) return;
        const auto is_place = [&](const Json& child) { return &child == place.value; };
        place.parent->erase(std::find_if(place.parent->begin(), place.parent->end(), is_place));
    }

    void repeat(const Place& place) {
        if (place.parent == nullptr || !place.parent->is_array()) return;
        Json copy = *place.value;
        place.parent->insert(
            place.parent->begin() + static_cast<std::ptrdiff_t>(below(place.parent->size() + 1)),
            std::move(copy));
    }

    void rename(const Place& place, const Place& other) {
        if (place.parent == nullptr || !place.parent->is_object()) return;
        std::string key(other.key);
        if (below(4) == 0) key = mutate(std::string(place.key));
        (*place.parent)[key] = Json(*place.value);
    }

    void nest(const Place& place) {
        if (place.value->is_structured() && !place.value->empty() && below(2) == 0) {
            auto chosen = place.value->begin();
            for (std::size_t skipped = below(place.value->size()); skipped != 0; --skipped)
                ++chosen;
            Json child = *chosen;
            *place.value = std::move(child);
        } else {
            *place.value = Json::array({Json(*place.value)});
        }
    }

    // A value with the same key and type, else one with the same type, else any value.
    Json& similar(const Place& place, std::vector<Place>& others) {
        std::vector<Json*> same, typed;
        for (const Place& other : others) {
            if (other.value->type() != place.value->type()) continue;
            typed.push_back(other.value);
            if (other.key == place.key) same.push_back(other.value);
        }
        if (!same.empty() && below(4) != 0) return *pick(same);
        if (!typed.empty() && below(4) != 0) return *pick(typed);
        return *pick(others).value;
    }

    void change(Json& value) {
        if (value.is_boolean())
            value = !value.get<bool>();
        else if (value.is_number_integer())
            value = value.get<std::int64_t>() ^ (std::int64_t{1} << below(64));
        else if (value.is_number_float())
            value = value.get<double>() * (below(2) == 0 ? -1 : 1e30);
        else if (value.is_string())
            value = mutate(value.get<std::string>());
        else if (value.is_array())
            std::shuffle(value.begin(), value.end(), random_);
        else
            value = constant();
    }

    std::minstd_rand random_;
};

}  // namespace
}  // namespace axle::tests

// NOLINTBEGIN(readability-identifier-naming): libFuzzer's

extern "C" std::size_t LLVMFuzzerCustomMutator(std::uint8_t* data, std::size_t size,
                                               std::size_t max_size, unsigned seed) {
    using namespace axle::tests;
    Mutator mutator(seed);
    auto input = parse(data, size);
    if (!input || mutator.below(4) == 0) return LLVMFuzzerMutate(data, size, max_size);
    if (!input->rest.empty() && mutator.below(4) == 0)
        input->rest.replace(1, std::string::npos, mutator.mutate(input->rest.substr(1)));
    else
        for (std::size_t changes = mutator.below(4) + 1; changes != 0; --changes)
            mutator.mutate(input->json);
    const std::size_t written = write(*input, data, max_size);
    return written != 0 ? written : LLVMFuzzerMutate(data, size, max_size);
}

extern "C" std::size_t LLVMFuzzerCustomCrossOver(const std::uint8_t* a, std::size_t a_size,
                                                 const std::uint8_t* b, std::size_t b_size,
                                                 std::uint8_t* out, std::size_t max_size,
                                                 unsigned seed) {
    using namespace axle::tests;
    Mutator mutator(seed);
    auto input = parse(a, a_size), other = parse(b, b_size);
    if (!input || !other) return 0;
    if (mutator.below(4) == 0) input->rest = std::move(other->rest);
    mutator.cross_over(input->json, other->json);
    return write(*input, out, max_size);
}

// NOLINTEND(readability-identifier-naming)
