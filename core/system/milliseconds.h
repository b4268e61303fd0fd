// Milliseconds: a time that converts from and to std::chrono durations.
#pragma once

#include <compare>
#include <concepts>
#include <cstdint>

namespace axle {

// A type with the interface of std::chrono::duration. This header does not include <chrono>, which
// takes a tenth of a second to compile.
template <class D>
concept ChronoDuration = std::integral<typename D::rep> && requires(D d) {
    D::period::num;
    { d.count() } -> std::same_as<typename D::rep>;
};

// A time in milliseconds, for options: `.timeout = std::chrono::seconds(30)`. Conversions that
// could lose precision do not compile.
class Milliseconds {
  public:
    constexpr explicit Milliseconds(std::int64_t count = 0) : count_(count) {}
    template <ChronoDuration D>
        requires(D::period::num * 1000 % D::period::den == 0)
    constexpr Milliseconds(D duration)  // NOLINT(google-explicit-constructor)
        : count_(duration.count() * (D::period::num * 1000 / D::period::den)) {}
    template <ChronoDuration D>
        requires(D::period::den % (D::period::num * 1000) == 0)
    constexpr operator D() const {  // NOLINT(google-explicit-constructor)
        return D(count_ * (D::period::den / (D::period::num * 1000)));
    }

    constexpr std::int64_t count() const { return count_; }
    friend constexpr auto operator<=>(Milliseconds, Milliseconds) = default;

  private:
    std::int64_t count_;
};

}  // namespace axle
