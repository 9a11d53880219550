// Products of another CPU's kernels: numbers come on stdin, and the products go to stdout. See test_arm.py.

#include "kernels.cpp"

#include <cstdio>

template <class T> std::vector<T> read(long count) {
    std::vector<T> numbers(count);
    if (std::fread(numbers.data(), sizeof(T), count, stdin) != static_cast<size_t>(count)) std::exit(1);
    return numbers;
}

int main() {
    for (int64_t kind[5]; std::fread(kind, sizeof(int64_t), 5, stdin) == 5;) {
        const auto [weights, pairs, rows, inputs, outputs] = kind;
        const long stride = pipedec_panel_words(weights, inputs);
        Model model{};
        model.weights = std::min<int64_t>(weights, EIGHT);
        model.pairs = pairs;
        const auto x = read<float>(rows * inputs);
        const auto matrix = read<float>(outputs * inputs);
        std::vector<uint16_t> halves(matrix.size());
        for (size_t i = 0; i < matrix.size(); ++i) halves[i] = static_cast<uint16_t>(BFloat16::round(matrix[i]));
        Buffer<Word> panels(round_up(outputs, PANEL) / PANEL * stride);
        const void *given = weights == BFLOAT16 ? static_cast<const void *>(halves.data()) : matrix.data();
        pipedec_pack(&model, weights, weights == BFLOAT16, given, outputs, inputs, panels.data(), stride, 3);
        std::vector<float> out(rows * round_up(outputs, PANEL));
        pipedec_multiply(&model, weights, rows, x.data(), inputs, panels.data(), stride, outputs, out.data());
        for (long r = 0; r < rows; ++r) std::fwrite(out.data() + r * round_up(outputs, PANEL), sizeof(float), outputs, stdout);
        // Three threads take the pieces of many shares.
        std::vector<long> sums(100);
        Team team(3);
        team.run([&](int) {
            for (long &sum : sums) team.share(7, [&](long i) { __atomic_add_fetch(&sum, i, __ATOMIC_RELAXED); });
        });
        if (std::any_of(sums.begin(), sums.end(), [](long sum) { return sum != 21; })) return 2;
    }
}
