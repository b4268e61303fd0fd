// The binary elementwise formulas and comparisons of Axle. unary_formulas.inl explains how this
// file is included.

// The lists of all comparisons, and of all binary formulas except the formulas in
// special_formulas.inl. Code that is compiled once per formula expands them.
// clang-format off
#define AXLE_BINARY_FORMULAS(X) X(Add) X(Sub) X(Mul) X(Div) X(Pow) X(Maximum) X(Minimum)
#define AXLE_COMPARISON_FORMULAS(X) \
    X(Equal) X(NotEqual) X(Less) X(LessEqual) X(Greater) X(GreaterEqual)
// clang-format on

struct Add {
    static constexpr bool kIntegers = true;
    template <class T>
    AXLE_HOST_DEVICE T value(T a, T b) const {
        return a + b;
    }
};
struct Sub {
    static constexpr bool kIntegers = true;
    template <class T>
    AXLE_HOST_DEVICE T value(T a, T b) const {
        return a - b;
    }
};
struct Mul {
    static constexpr bool kIntegers = true;
    template <class T>
    AXLE_HOST_DEVICE T value(T a, T b) const {
        return a * b;
    }
};
struct Div {
    static constexpr bool kIntegers = false;
    template <class T>
    AXLE_HOST_DEVICE T value(T a, T b) const {
        return a / b;
    }
};
struct Pow {
    static constexpr bool kIntegers = true;
    template <class T>
    AXLE_HOST_DEVICE T value(T a, T b) const {
        if constexpr (std::is_integral_v<T>)
            return integer_power(a, static_cast<long long>(b));
        else
            return pow(a, b);
    }
};
// The larger operand. NaN is propagated, as in PyTorch.
struct Maximum {
    static constexpr bool kIntegers = true;
    template <class T>
    AXLE_HOST_DEVICE T value(T a, T b) const {
        return select(is_nan(a), a, select(a > b, a, b));
    }
};
struct Minimum {
    static constexpr bool kIntegers = true;
    template <class T>
    AXLE_HOST_DEVICE T value(T a, T b) const {
        return select(is_nan(a), a, select(a < b, a, b));
    }
};

// In comparisons, value() returns a bool for scalars and a mask for packs.

struct Equal {
    template <class T>
    AXLE_HOST_DEVICE auto value(T a, T b) const {
        return a == b;
    }
};
struct NotEqual {
    template <class T>
    AXLE_HOST_DEVICE auto value(T a, T b) const {
        return a != b;
    }
};
struct Less {
    template <class T>
    AXLE_HOST_DEVICE auto value(T a, T b) const {
        return a < b;
    }
};
struct LessEqual {
    template <class T>
    AXLE_HOST_DEVICE auto value(T a, T b) const {
        return a <= b;
    }
};
struct Greater {
    template <class T>
    AXLE_HOST_DEVICE auto value(T a, T b) const {
        return a > b;
    }
};
struct GreaterEqual {
    template <class T>
    AXLE_HOST_DEVICE auto value(T a, T b) const {
        return a >= b;
    }
};
