// Elementary and special functions that are rarely on a hot path, and bitwise functions.
// kernels/ops/pointwise.h includes this file. All formulas are compiled for scalars only: bitwise
// formulas (kBitwise) for integers, all other formulas (kScalarOnly) with 16-bit operands converted
// to f32. unary_formulas.inl explains the other members.

// clang-format off
#define AXLE_SPECIAL_FORMULAS(X)                                                           \
    X(Sin) X(Cos) X(Tan) X(Asin) X(Acos) X(Atan) X(Sinh) X(Cosh) X(Asinh) X(Acosh)         \
    X(Atanh) X(Exp2) X(Expm1) X(Log2) X(Log10) X(Log1p) X(Erf) X(Erfc) X(Erfinv) X(Lgamma) \
    X(Digamma) X(Frac) X(Softshrink)
#define AXLE_SPECIAL_BINARY_FORMULAS(X) X(FloorDivide) X(Fmod) X(Remainder) X(Atan2)
#define AXLE_BITWISE_FORMULAS(X) X(BitwiseAnd) X(BitwiseOr) X(BitwiseXor)
// clang-format on

// AXLE_SPECIAL(Name, saves output, value, slope, curve) defines a formula. In its value, x is the
// operand. In its slope and its curve, x is the saved value, which is the operand or the output.
#define AXLE_SPECIAL(NAME, SAVES_OUTPUT, VALUE, SLOPE, CURVE)                 \
    struct NAME {                                                             \
        static constexpr bool kSavesOutput = SAVES_OUTPUT, kIntegers = false; \
        static constexpr bool kScalarOnly = true;                             \
        template <class T>                                                    \
        AXLE_HOST_DEVICE T value(T x) const {                                 \
            return VALUE;                                                     \
        }                                                                     \
        template <class T>                                                    \
        AXLE_HOST_DEVICE T slope([[maybe_unused]] T x) const {                \
            return SLOPE;                                                     \
        }                                                                     \
        template <class T>                                                    \
        AXLE_HOST_DEVICE T curve([[maybe_unused]] T x) const {                \
            return CURVE;                                                     \
        }                                                                     \
    }

// Returns x^(3/2).
template <class T>
AXLE_HOST_DEVICE T three_halves(T x) {
    return x * std::sqrt(x);
}

AXLE_SPECIAL(Sin, false, std::sin(x), std::cos(x), -std::sin(x));
AXLE_SPECIAL(Cos, false, std::cos(x), -std::sin(x), -std::cos(x));
AXLE_SPECIAL(Tan, true, std::tan(x), T(1) + x * x, T(2) * x);
AXLE_SPECIAL(Asin, false, std::asin(x), T(1) / std::sqrt(T(1) - x * x),
             x / three_halves(T(1) - x * x));
AXLE_SPECIAL(Acos, false, std::acos(x), T(-1) / std::sqrt(T(1) - x * x),
             -x / three_halves(T(1) - x * x));
AXLE_SPECIAL(Atan, false, std::atan(x), T(1) / (T(1) + x * x),
             T(-2) * x / ((T(1) + x * x) * (T(1) + x * x)));
AXLE_SPECIAL(Sinh, false, std::sinh(x), std::cosh(x), std::sinh(x));
AXLE_SPECIAL(Cosh, false, std::cosh(x), std::sinh(x), std::cosh(x));
AXLE_SPECIAL(Asinh, false, std::asinh(x), T(1) / std::sqrt(x * x + T(1)),
             -x / three_halves(x * x + T(1)));
AXLE_SPECIAL(Acosh, false, std::acosh(x), T(1) / std::sqrt(x * x - T(1)),
             -x / three_halves(x * x - T(1)));
AXLE_SPECIAL(Atanh, false, std::atanh(x), T(1) / (T(1) - x * x),
             T(2) * x / ((T(1) - x * x) * (T(1) - x * x)));
AXLE_SPECIAL(Exp2, true, std::exp2(x), x* T(0.69314718055994530942), T(0.69314718055994530942));
AXLE_SPECIAL(Expm1, true, std::expm1(x), x + T(1), T(1));
AXLE_SPECIAL(Log2, false, std::log2(x), T(1.44269504088896340736) / x,
             T(-1.44269504088896340736) / (x * x));
AXLE_SPECIAL(Log10, false, std::log10(x), T(0.43429448190325182765) / x,
             T(-0.43429448190325182765) / (x * x));
AXLE_SPECIAL(Log1p, false, std::log1p(x), T(1) / (T(1) + x), T(-1) / ((T(1) + x) * (T(1) + x)));
AXLE_SPECIAL(Erf, false, std::erf(x), T(1.12837916709551257390) * std::exp(-x * x),
             T(-2 * 1.12837916709551257390) * x * std::exp(-x * x));
AXLE_SPECIAL(Erfc, false, std::erfc(x), T(-1.12837916709551257390) * std::exp(-x * x),
             T(2 * 1.12837916709551257390) * x * std::exp(-x * x));
AXLE_SPECIAL(Erfinv, true, inverse_erf(x), T(0.88622692545275801365) * std::exp(x * x),
             T(2 * 0.88622692545275801365) * x * std::exp(x * x));
AXLE_SPECIAL(Lgamma, false, log_gamma(x), polygamma(0, x), polygamma(1, x));
AXLE_SPECIAL(Digamma, false, polygamma(0, x), polygamma(1, x), polygamma(2, x));
AXLE_SPECIAL(Frac, false, x - std::trunc(x), T(1), T(0));
#undef AXLE_SPECIAL

// The soft shrinkage, which moves x towards 0 by lambda, and to 0 if |x| <= lambda. NaN stays NaN.
struct Softshrink {
    static constexpr bool kSavesOutput = false, kIntegers = false, kScalarOnly = true;
    double lambda;
    template <class T>
    AXLE_HOST_DEVICE T value(T x) const {
        return x > T(lambda) ? x - T(lambda) : x < T(-lambda) ? x + T(lambda) : x * T(0);
    }
    template <class T>
    AXLE_HOST_DEVICE T slope(T x) const {
        return x >= T(-lambda) && x <= T(lambda) ? T(0) : T(1);
    }
    template <class T>
    AXLE_HOST_DEVICE T curve(T) const {
        return T(0);
    }
};

// The quotient a / b, rounded down. Division of an integer by 0 gives 0.
struct FloorDivide {
    static constexpr bool kIntegers = true, kScalarOnly = true;
    template <class T>
    AXLE_HOST_DEVICE T value(T a, T b) const {
        if constexpr (std::is_integral_v<T>) {
            if (b == 0) return 0;
            if (std::is_signed_v<T> && b == T(-1)) return negated(a);
            return static_cast<T>(a / b - (a % b != 0 && (a < 0) != (b < 0) ? 1 : 0));
        } else {
            if (b == T(0)) return a / b;
            // The dividend a - rest is an exact multiple of b. So the quotient is not rounded up to
            // the next integer.
            const T rest = std::fmod(a, b), quotient = (a - rest) / b;
            const T down = rest != T(0) && (rest < T(0)) != (b < T(0)) ? quotient - T(1) : quotient;
            if (down == T(0)) return std::copysign(T(0), a / b);
            const T whole = std::floor(down);
            return down - whole > T(0.5) ? whole + T(1) : whole;
        }
    }
    // Returns -a; the least integer stays the same.
    template <class T>
    AXLE_HOST_DEVICE static T negated(T a) {
        return static_cast<T>(T(0) - static_cast<std::make_unsigned_t<T>>(a));
    }
};

// The remainder of a / b rounded towards 0, which has the sign of a. The remainder of an integer
// divided by 0 is 0.
struct Fmod {
    static constexpr bool kIntegers = true, kScalarOnly = true;
    template <class T>
    AXLE_HOST_DEVICE T value(T a, T b) const {
        if constexpr (std::is_integral_v<T>)
            return b == 0 || (std::is_signed_v<T> && b == T(-1)) ? T(0) : static_cast<T>(a % b);
        else
            return std::fmod(a, b);
    }
};

// The remainder of a / b rounded down, which has the sign of b. The remainder of an integer divided
// by 0 is 0.
struct Remainder {
    static constexpr bool kIntegers = true, kScalarOnly = true;
    template <class T>
    AXLE_HOST_DEVICE T value(T a, T b) const {
        const T rest = Fmod{}.value(a, b);
        return rest != T(0) && (rest < T(0)) != (b < T(0)) ? static_cast<T>(rest + b) : rest;
    }
};

struct Atan2 {
    static constexpr bool kIntegers = false, kScalarOnly = true;
    template <class T>
    AXLE_HOST_DEVICE T value(T a, T b) const {
        return std::atan2(a, b);
    }
};

struct BitwiseAnd {
    static constexpr bool kBitwise = true;
    template <class T>
    AXLE_HOST_DEVICE T value(T a, T b) const {
        return static_cast<T>(a & b);
    }
};
struct BitwiseOr {
    static constexpr bool kBitwise = true;
    template <class T>
    AXLE_HOST_DEVICE T value(T a, T b) const {
        return static_cast<T>(a | b);
    }
};
struct BitwiseXor {
    static constexpr bool kBitwise = true;
    template <class T>
    AXLE_HOST_DEVICE T value(T a, T b) const {
        return static_cast<T>(a ^ b);
    }
};
