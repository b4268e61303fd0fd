// The unary formulas whose results are integers. unary_formulas.inl explains how this file is
// included. Each formula returns integers unchanged, except for Sign.

// clang-format off
#define AXLE_ROUNDING_FORMULAS(X) X(Floor) X(Ceil) X(Round) X(Trunc) X(Sign)
// clang-format on

// The derivatives of a function that is constant between its steps.
struct Steps {
    static constexpr bool kSavesOutput = false, kIntegers = true;
    template <class T>
    AXLE_HOST_DEVICE T slope(T) const {
        return T(0);
    }
    template <class T>
    AXLE_HOST_DEVICE T curve(T) const {
        return T(0);
    }
};

struct Floor : Steps {
    template <class T>
    AXLE_HOST_DEVICE T value(T x) const {
        if constexpr (std::is_integral_v<T>)
            return x;
        else
            return floor(x);
    }
};

struct Ceil : Steps {
    template <class T>
    AXLE_HOST_DEVICE T value(T x) const {
        if constexpr (std::is_integral_v<T>)
            return x;
        else
            return ceil(x);
    }
};

// Rounding to the nearest integer. Numbers halfway between two integers are rounded to the even
// integer.
struct Round : Steps {
    template <class T>
    AXLE_HOST_DEVICE T value(T x) const {
        if constexpr (std::is_integral_v<T>)
            return x;
        else
            return rint(x);
    }
};

struct Trunc : Steps {
    template <class T>
    AXLE_HOST_DEVICE T value(T x) const {
        if constexpr (std::is_integral_v<T>)
            return x;
        else
            return trunc(x);
    }
};

// The sign, -1, 0 or 1. The sign of NaN is 0, as in PyTorch.
struct Sign : Steps {
    template <class T>
    AXLE_HOST_DEVICE T value(T x) const {
        if constexpr (std::is_integral_v<T> && !std::is_signed_v<T>)
            return select(x > T(0), T(1), T(0));
        else
            return select(x > T(0), T(1), select(x < T(0), T(-1), T(0)));
    }
};
