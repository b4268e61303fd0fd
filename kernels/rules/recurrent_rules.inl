// The formulas of one step of recurrent cells, for one element of the state. unary_formulas.inl
// explains how this file is included. apply() reads kIn and writes kOut numbers.

// The LSTM cell (Hochreiter and Schmidhuber, "Long Short-Term Memory", 1997) with the gates of
// PyTorch's nn.LSTM. in: the input, forget, cell and output gates computed from x, then the same
// gates computed from h (both before the activations), then c. out: the next h and c.
struct LstmStep {
    static constexpr int kIn = 9, kOut = 2;
    template <class T>
    AXLE_HOST_DEVICE static void apply(const T (&in)[kIn], T (&out)[kOut]) {
        const T input = Sigmoid().value(in[0] + in[4]), forget = Sigmoid().value(in[1] + in[5]);
        const T output = Sigmoid().value(in[3] + in[7]);
        out[1] = forget * in[8] + input * Tanh().value(in[2] + in[6]);
        out[0] = output * Tanh().value(out[1]);
    }
};

// The gradient of LstmStep. in: the inputs of LstmStep, then the gradients of the next h and c.
// out: the gradients of the four gates before their activations, then of c.
struct LstmStepBackward {
    static constexpr int kIn = 11, kOut = 5;
    template <class T>
    AXLE_HOST_DEVICE static void apply(const T (&in)[kIn], T (&out)[kOut]) {
        const T input = Sigmoid().value(in[0] + in[4]), forget = Sigmoid().value(in[1] + in[5]);
        const T cell = Tanh().value(in[2] + in[6]), output = Sigmoid().value(in[3] + in[7]);
        const T bent = Tanh().value(forget * in[8] + input * cell);
        const T dc = in[10] + in[9] * output * Tanh().slope(bent);
        out[0] = dc * cell * Sigmoid().slope(input);
        out[1] = dc * in[8] * Sigmoid().slope(forget);
        out[2] = dc * input * Tanh().slope(cell);
        out[3] = in[9] * bent * Sigmoid().slope(output);
        out[4] = dc * forget;
    }
};

// The GRU cell (Cho et al., "Learning Phrase Representations using RNN Encoder-Decoder", 2014) in
// the form of PyTorch's nn.GRU. in: the reset, update and new gates computed from x, then the same
// gates computed from h (both before the activations), then h. out: the next h.
struct GruStep {
    static constexpr int kIn = 7, kOut = 1;
    template <class T>
    AXLE_HOST_DEVICE static void apply(const T (&in)[kIn], T (&out)[kOut]) {
        const T reset = Sigmoid().value(in[0] + in[3]), update = Sigmoid().value(in[1] + in[4]);
        const T candidate = Tanh().value(in[2] + reset * in[5]);
        out[0] = candidate + update * (in[6] - candidate);
    }
};

// The gradient of GruStep. in: the inputs of GruStep, then the gradient of the next h. out: the
// gradients of the gates computed from x, of the gates computed from h, and of h.
struct GruStepBackward {
    static constexpr int kIn = 8, kOut = 7;
    template <class T>
    AXLE_HOST_DEVICE static void apply(const T (&in)[kIn], T (&out)[kOut]) {
        const T reset = Sigmoid().value(in[0] + in[3]), update = Sigmoid().value(in[1] + in[4]);
        const T candidate = Tanh().value(in[2] + reset * in[5]);
        out[2] = in[7] * (T(1) - update) * Tanh().slope(candidate);
        out[0] = out[3] = out[2] * in[5] * Sigmoid().slope(reset);
        out[1] = out[4] = in[7] * (in[6] - candidate) * Sigmoid().slope(update);
        out[5] = out[2] * reset;
        out[6] = in[7] * update;
    }
};
